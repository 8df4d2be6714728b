/*
 * rights.h - descriptors that go over a Unix socket together with bytes (SCM_RIGHTS: unix(7),
 * cmsg(3)).
 */
#ifndef DPB_CORE_MACHINE_RIGHTS_H
#define DPB_CORE_MACHINE_RIGHTS_H

#include <stddef.h>
#include <sys/types.h>

enum { DPB_RIGHTS_MOST = 16 }; /* of one message */

/* As sendmsg, without SIGPIPE. The descriptors, which stay the caller's, go with the first byte. */
ssize_t dpb_rights_send(int socket, const void *bytes, size_t n, int flags, const int *fds,
                        size_t n_fds);
/* As recvmsg. Sets *n_fds to the number of received descriptors, whatever the result:
 * close-on-exec, @owned. */
ssize_t dpb_rights_receive(int socket, void *bytes, size_t n, int flags, int fds[DPB_RIGHTS_MOST],
                           size_t *n_fds);
void dpb_rights_close(const int *fds, size_t n_fds);

#endif
