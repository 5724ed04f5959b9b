#include "tls.h"

#include "wire.h"

#ifdef WITH_TLS

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

/* A read of the socket takes this much, so that many small records cost one; about so much is encrypted for a send. */
enum { READ_AHEAD_BYTES = 1 << 17, ENCRYPTED_BYTES = 1 << 17, HANDSHAKE_WAIT_MS = 10000 };

/* One cipher for every broker: figures of different ones do not compare. */
static const char CIPHER[] = "TLS_AES_256_GCM_SHA384";

struct tls {
    int fd;
    SSL *ssl;
    BIO *encrypted;
    size_t encrypted_sent_bytes;
};

__attribute__((noreturn)) static void die_of_tls(const char *what) {
    char reason[256] = "the connection ended";
    if (ERR_peek_error() != 0) ERR_error_string_n(ERR_get_error(), reason, sizeof reason);
    die("%s: %s", what, reason);
}

static SSL_CTX *make_context(const struct options *options) {
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL) die_of_tls("TLS");
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, READ_AHEAD_BYTES);
    if (SSL_CTX_set_ciphersuites(context, CIPHER) != 1) die_of_tls(CIPHER);
    if (SSL_CTX_load_verify_locations(context, options->ca, NULL) != 1) die_of_tls(options->ca);
    return context;
}

struct tls *open_tls(int fd, const struct options *options) {
    static SSL_CTX *context;
    if (context == NULL) context = make_context(options);
    struct tls *tls = take_memory(sizeof *tls);
    tls->fd = fd;
    tls->ssl = SSL_new(context);
    if (tls->ssl == NULL || SSL_set_fd(tls->ssl, fd) != 1) die_of_tls("TLS");
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls->ssl), options->host);
    int done;
    while ((done = SSL_connect(tls->ssl)) != 1) {
        int wants = SSL_get_error(tls->ssl, done);
        if (wants != SSL_ERROR_WANT_READ && wants != SSL_ERROR_WANT_WRITE) die_of_tls("TLS handshake");
        struct pollfd polled = {.fd = fd, .events = wants == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT};
        if (poll(&polled, 1, HANDSHAKE_WAIT_MS) == 0) die("the broker does not answer in the TLS handshake");
    }
    /* From here on records are collected: one send for many. */
    tls->encrypted = BIO_new(BIO_s_mem());
    if (tls->encrypted == NULL) die_of_tls("TLS");
    SSL_set0_wbio(tls->ssl, tls->encrypted);
    return tls;
}

ssize_t tls_receive(struct tls *tls, void *at, size_t size_bytes) {
    size_t received = 0, got;
    while (received < size_bytes) {
        ERR_clear_error();
        int done = SSL_read_ex(tls->ssl, (char *)at + received, size_bytes - received, &got);
        if (done != 1) {
            int wants = SSL_get_error(tls->ssl, done);
            if (wants == SSL_ERROR_WANT_READ) break;
            if (wants == SSL_ERROR_ZERO_RETURN) return (ssize_t)received;
            die_of_tls("receive");
        }
        received += got;
    }
    if (received > 0) return (ssize_t)received;
    errno = EAGAIN;
    return -1;
}

/* A record at least for each vector, as clients write their requests. */
ssize_t tls_send(struct tls *tls, const struct iovec *vectors, size_t count) {
    size_t accepted = 0, put;
    if (tls_flush(tls)) {
        errno = EAGAIN;
        return -1;
    }
    for (size_t i = 0; i < count && accepted < ENCRYPTED_BYTES; i++) {
        size_t size_bytes = vectors[i].iov_len;
        if (size_bytes > ENCRYPTED_BYTES - accepted) size_bytes = ENCRYPTED_BYTES - accepted;
        if (SSL_write_ex(tls->ssl, vectors[i].iov_base, size_bytes, &put) != 1) die_of_tls("send");
        accepted += put;
    }
    tls_flush(tls);
    return (ssize_t)accepted;
}

int tls_holds_received(const struct tls *tls) { return SSL_has_pending(tls->ssl); }

int tls_flush(struct tls *tls) {
    char *bytes;
    size_t size_bytes = (size_t)BIO_get_mem_data(tls->encrypted, &bytes);
    while (tls->encrypted_sent_bytes < size_bytes) {
        ssize_t sent = send(tls->fd, bytes + tls->encrypted_sent_bytes, size_bytes - tls->encrypted_sent_bytes,
                            MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) return 1;
        if (sent < 0) die("send: %s", strerror(errno));
        tls->encrypted_sent_bytes += (size_t)sent;
    }
    (void)BIO_reset(tls->encrypted);
    tls->encrypted_sent_bytes = 0;
    return 0;
}

#else

struct tls *open_tls(int fd, const struct options *options) {
    (void)fd;
    die("built without TLS, which %s needs", options->ca);
}

ssize_t tls_receive(struct tls *tls, void *at, size_t size_bytes) {
    (void)tls, (void)at, (void)size_bytes;
    die("built without TLS");
}

ssize_t tls_send(struct tls *tls, const struct iovec *vectors, size_t count) {
    (void)tls, (void)vectors, (void)count;
    die("built without TLS");
}

int tls_holds_received(const struct tls *tls) {
    (void)tls;
    die("built without TLS");
}

int tls_flush(struct tls *tls) {
    (void)tls;
    die("built without TLS");
}

#endif
