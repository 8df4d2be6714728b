/*
 * network.h - a network of hosts within the test: each a network namespace of its own, joined by a
 * switch, links shaped to a rate. Namespaces have no names: they belong to processes that die with
 * the test, so nothing is left of them however it ends. Needs root.
 *
 * dpbench's local launcher starts ranks on the hosts of DPBENCH_HOSTS: launch/hosts.h.
 */
#ifndef DPB_TESTS_LIB_NETWORK_H
#define DPB_TESTS_LIB_NETWORK_H

#include <stdbool.h>
#include <sys/types.h>

enum { NETWORK_HOSTS = 8 };

struct network {
    int n;
    pid_t keepers[NETWORK_HOSTS]; /* whose namespaces the hosts are */
    char variable[512];
};

/* Host h (from 0) has the address 10.9.0.h+1/24 on eth0. `rate` as for tc ("1gbit"); NULL: not
 * shaped. The test program itself moves into a namespace of its own, where the switch is: it sees
 * the machine's interfaces no more. Once a program. */
void network_up(struct network *network, int n, const char *rate);
void network_down(struct network *network);

/* Shapes the links of all hosts, anew if they are: parameters as for tc's tbf. */
void network_shape(const struct network *network, const char *parameters);
void network_unshape(const struct network *network);
void network_shape_host(const struct network *network, int host, const char *parameters);
/* What the switch sends to a host, too; NULL: no more. */
void network_shape_to(int host, const char *parameters);
/* The congestion control of connections that the hosts make from now on, by its name in the kernel;
 * without it, the machine's own. */
void network_set_tcp(const struct network *network, const char *name);

/* Whether this process may: root, and not in a container that forbids it. */
bool network_possible(void);

/* This process moves into a namespace of its own that has nothing but loopback, which is down. As
 * root, or where users may have namespaces: then it is root in one of theirs. False: it may not. */
bool network_leave(void);
/* Puts loopback up. */
void network_loop(void);

/* Skips the test, and says why, where there is no network. */
void network_or_skip(const struct network *network);

/* Bytes that the switch has passed on to a host so far: the test's own end of its cable. */
double network_bytes_to(int host);

/* Takes the cable of a host out, or puts it in. */
void network_plug(const struct network *network, int host, bool in);

/* A child on a host: true in the child, with its pid in the parent. */
bool network_fork(const struct network *network, int host, pid_t *pid);

/* What dpbench needs in its environment for the ranks of machine m, by comm.hosts, to be on host m;
 * ended by NULL. @borrowed until the next call. */
const char *const *network_environment(struct network *network);
/* All that this process starts from here on has it, or no more. */
void network_place(struct network *network, bool yes);

#endif
