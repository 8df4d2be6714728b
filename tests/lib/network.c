/* network.c - see network.h. */
#include "lib/network.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/hosts.h"
#include "lib/command.h"
#include "lib/test.h"

/* ip or tc, here or in a host's namespace. */
static void configure(const char *format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    int status = system(line);
    if (status != 0)
        fail_msg("'%s' ended with %d", line, status);
}

static void path_of(pid_t keeper, char path[64])
{
    snprintf(path, 64, "/proc/%d/ns/net", (int)keeper);
}

/* A process that holds a namespace and does nothing else. */
static pid_t start_keeper(void)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t parent = getpid(), pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || unshare(CLONE_NEWNET) != 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    ssize_t n = read(ready[0], &byte, 1);
    close(ready[0]);
    if (n != 1)
        fail_msg("cannot make a network namespace");
    return pid;
}

bool network_possible(void)
{
    pid_t pid = fork();
    int status = 1;
    if (pid == 0)
        _exit(unshare(CLONE_NEWNET) != 0);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static bool write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    bool written = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && written;
}

bool network_leave(void)
{
    char map[64];
    snprintf(map, sizeof map, "0 %u 1", getuid());
    return unshare(CLONE_NEWNET) == 0 ||
           (unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && write_text("/proc/self/uid_map", map));
}

void network_loop(void)
{
    configure("ip link set lo up");
}

void network_up(struct network *network, int n, const char *rate)
{
    network->n = n;
    assert_true(n <= NETWORK_HOSTS);
    assert_int_equal(unshare(CLONE_NEWNET), 0);
    configure("ip link add switch type bridge && ip link set switch up");
    for (int host = 0; host < n; host++) {
        pid_t keeper = network->keepers[host] = start_keeper();
        configure("ip link add cable%d type veth peer name eth0 netns %d", host, (int)keeper);
        configure("ip link set cable%d master switch up", host);
        configure("nsenter --net=/proc/%d/ns/net sh -c 'ip addr add 10.9.0.%d/24 dev eth0 && "
                  "ip link set lo up && ip link set eth0 up'",
                  (int)keeper, host + 1);
    }
    if (rate) {
        char parameters[64];
        snprintf(parameters, sizeof parameters, "rate %s burst 256k latency 50ms", rate);
        network_shape(network, parameters);
    }
}

void network_shape_host(const struct network *network, int host, const char *parameters)
{
    configure("nsenter --net=/proc/%d/ns/net tc qdisc replace dev eth0 root tbf %s",
              (int)network->keepers[host], parameters);
}

void network_shape_to(int host, const char *parameters)
{
    configure("tc qdisc %s dev cable%d root %s%s", parameters ? "replace" : "del", host,
              parameters ? "tbf " : "", parameters ? parameters : "");
}

void network_unshape(const struct network *network)
{
    for (int host = 0; host < network->n; host++)
        configure("nsenter --net=/proc/%d/ns/net tc qdisc del dev eth0 root",
                  (int)network->keepers[host]);
}

void network_shape(const struct network *network, const char *parameters)
{
    for (int host = 0; host < network->n; host++)
        network_shape_host(network, host, parameters);
}

void network_set_tcp(const struct network *network, const char *name)
{
    for (int host = 0; host < network->n; host++)
        configure("nsenter --net=/proc/%d/ns/net sh -c 'echo %s "
                  ">/proc/sys/net/ipv4/tcp_congestion_control'",
                  (int)network->keepers[host], name);
}

void network_down(struct network *network)
{
    for (int host = 0; host < network->n; host++) {
        kill(network->keepers[host], SIGKILL);
        waitpid(network->keepers[host], NULL, 0);
    }
    network->n = 0;
}

void network_or_skip(const struct network *network)
{
    if (network->n > 0)
        return;
    print_message("no network namespaces here (root?)\n");
    skip();
}

double network_bytes_to(int host)
{
    char line[64];
    snprintf(line, sizeof line, "ip -s -j link show cable%d", host);
    FILE *answer = popen(line, "re");
    assert_non_null(answer);
    json_t *links = own_json(json_loadf(answer, 0, NULL));
    pclose(answer);
    double bytes = json_number_at(json_array_get(links, 0), "stats64.tx.bytes");
    return bytes;
}

void network_plug(const struct network *network, int host, bool in)
{
    assert_true(host < network->n);
    configure("ip link set cable%d %s", host, in ? "up" : "down");
}

bool network_fork(const struct network *network, int host, pid_t *pid)
{
    char path[64];
    *pid = fork();
    assert_true(*pid >= 0);
    if (*pid != 0)
        return false;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    path_of(network->keepers[host], path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
        _exit(127);
    close(fd);
    return true;
}

const char *const *network_environment(struct network *network)
{
    static const char *list[2];
    char *variable = network->variable;
    const size_t size = sizeof network->variable;
    size_t used = (size_t)snprintf(variable, size, DPB_HOSTS_VARIABLE "=");
    for (int host = 0; host < network->n; host++)
        used += (size_t)snprintf(variable + used, size - used, "%s%d", host > 0 ? ":" : "",
                                 (int)network->keepers[host]);
    assert_true(used < size);
    list[0] = variable;
    return list;
}

void network_place(struct network *network, bool yes)
{
    const char *variable = network_environment(network)[0];
    if (yes)
        setenv(DPB_HOSTS_VARIABLE, strchr(variable, '=') + 1, 1);
    else
        unsetenv(DPB_HOSTS_VARIABLE);
}
