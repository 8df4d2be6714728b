/* rights.c - see rights.h. */
#include "machine/rights.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
    char bytes[CMSG_SPACE(DPB_RIGHTS_MOST * sizeof(int))];
    struct cmsghdr align;
};

ssize_t dpb_rights_send(int socket, const void *bytes, size_t n, int flags, const int *fds,
                        size_t n_fds)
{
    union control control = {{0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    assert(n_fds <= DPB_RIGHTS_MOST);
    if (n_fds > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(header), fds, n_fds * sizeof(int));
    }
    return sendmsg(socket, &message, flags | MSG_NOSIGNAL);
}

ssize_t dpb_rights_receive(int socket, void *bytes, size_t n, int flags, int fds[DPB_RIGHTS_MOST],
                           size_t *n_fds)
{
    union control control;
    struct iovec part = {.iov_base = bytes, .iov_len = n};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    *n_fds = 0;
    ssize_t got = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    if (got < 0)
        return got;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && *n_fds < DPB_RIGHTS_MOST; i++)
            memcpy(&fds[(*n_fds)++], CMSG_DATA(h) + i * sizeof(int), sizeof(int));
    }
    return got;
}

void dpb_rights_close(const int *fds, size_t n_fds)
{
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
}
