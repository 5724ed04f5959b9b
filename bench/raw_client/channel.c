#include "channel.h"

#include <sys/socket.h>

#include "measurement.h"
#include "tls.h"

struct channel open_channel(const struct options *options) {
    struct channel channel = {.fd = open_connection(options)};
    if (options->ca != NULL) channel.tls = open_tls(channel.fd, options);
    return channel;
}

ssize_t channel_receive(struct channel *channel, void *at, size_t size_bytes) {
    if (channel->tls != NULL) return tls_receive(channel->tls, at, size_bytes);
    return recv(channel->fd, at, size_bytes, 0);
}

ssize_t channel_send(struct channel *channel, struct iovec *vectors, size_t count) {
    if (channel->tls != NULL) return tls_send(channel->tls, vectors, count);
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = count};
    return sendmsg(channel->fd, &message, MSG_NOSIGNAL);
}

int channel_holds_received(const struct channel *channel) {
    return channel->tls != NULL && tls_holds_received(channel->tls);
}

int channel_flush(struct channel *channel) { return channel->tls != NULL && tls_flush(channel->tls); }
