/* TLS 1.3 on a non-blocking socket; the functions are those of channel.h. */
#ifndef RAW_CLIENT_TLS_H
#define RAW_CLIENT_TLS_H

#include <sys/types.h>
#include <sys/uio.h>

#include "options.h"

struct tls;

/* Shakes hands, and dies unless the certificate is for the host and signed by the CA of the options. */
struct tls *open_tls(int fd, const struct options *options);

ssize_t tls_receive(struct tls *tls, void *at, size_t size_bytes);
ssize_t tls_send(struct tls *tls, const struct iovec *vectors, size_t count);
int tls_holds_received(const struct tls *tls);
int tls_flush(struct tls *tls);

#endif
