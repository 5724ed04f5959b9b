/* A connection to the broker, with TLS or without: receives and sends as a non-blocking socket does. */
#ifndef RAW_CLIENT_CHANNEL_H
#define RAW_CLIENT_CHANNEL_H

#include <sys/types.h>
#include <sys/uio.h>

#include "options.h"

struct tls;

struct channel {
    int fd;
    struct tls *tls; /* NULL = plain */
};

/* Connected, without Nagle's delay; under TLS the handshake is complete. */
struct channel open_channel(const struct options *options);

/* As recv(2): -1 and EAGAIN when nothing is there. */
ssize_t channel_receive(struct channel *channel, void *at, size_t size_bytes);

/* As sendmsg(2): the bytes that were accepted, or -1 and EAGAIN. */
ssize_t channel_send(struct channel *channel, struct iovec *vectors, size_t count);

/* Whether bytes were received that poll(2) does not show. */
int channel_holds_received(const struct channel *channel);

/* Sends what was accepted and has not left; returns whether some of it is still here, and the socket has to become
 * writable. */
int channel_flush(struct channel *channel);

#endif
