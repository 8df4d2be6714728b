/* hosts.c - see hosts.h. */
#include "launch/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "launch/machines.h"
#include "world/world.h"

/* A process that took the number of a host's is in this process's namespace. */
static dpb_status open_host(struct dpb_hosts *hosts, long pid)
{
    struct stat own, other;
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/ns/net", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const int error = fd < 0 ? errno : 0;
    if (fd >= 0)
        hosts->fds[hosts->n++] = fd;
    if (fd < 0 || fstat(fd, &other) != 0 || stat("/proc/self/ns/net", &own) != 0 ||
        own.st_ino == other.st_ino)
        return dpb_fail(DPB_USAGE,
                        DPB_HOSTS_VARIABLE ": process %ld holds no network of `dpbench hosts`%s%s; "
                                           "if `dpbench hosts` has ended, unset the variable",
                        pid, error ? ": " : "", error ? strerror(error) : "");
    return DPB_OK;
}

static dpb_status open_all(struct dpb_hosts *hosts, const char *text)
{
    for (const char *at = text;; at++) {
        char *end;
        const long pid = strtol(at, &end, 10);
        if (end == at || pid <= 0 || (*end != ':' && *end != '\0') || hosts->n == DPB_HOSTS_MOST)
            return dpb_fail(DPB_USAGE,
                            DPB_HOSTS_VARIABLE " = %s is no list of up to %d processes, as in "
                                               "812:813; `dpbench hosts` sets it",
                            text, DPB_HOSTS_MOST);
        DPB_TRY(open_host(hosts, pid));
        if (*(at = end) == '\0')
            return DPB_OK;
    }
}

dpb_status dpb_hosts_open(struct dpb_hosts *hosts)
{
    const char *text = getenv(DPB_HOSTS_VARIABLE);
    hosts->n = 0;
    dpb_status status = text ? open_all(hosts, text) : DPB_OK;
    if (status != DPB_OK)
        dpb_hosts_close(hosts);
    return status;
}

void dpb_hosts_close(struct dpb_hosts *hosts)
{
    while (hosts->n > 0)
        close(hosts->fds[--hosts->n]);
}

/* `each` workers on a host; the last of n hosts may have none. */
static dpb_status spread(uint32_t n, uint32_t each, uint32_t n_workers, uint32_t n_servers,
                         struct dpb_config *config)
{
    enum { BYTES = 16 * 1024 };
    const uint32_t n_ranks = n_workers + n_servers;
    char text[BYTES];
    uint32_t *machines = calloc(n_ranks, sizeof *machines);
    DPB_TRY(dpb_allocated(machines));
    for (uint32_t rank = 0; rank < n_ranks; rank++)
        machines[rank] = rank < n_workers ? rank / each : (rank - n_workers) % n;
    const bool fits = dpb_machines_format(machines, n_ranks, text, sizeof text);
    free(machines);
    return fits ? dpb_config_set(config, "comm", "hosts", text, DPB_HOSTS_ORIGIN)
                : dpb_fail(DPB_UNSUPPORTED, "%u ranks on %u hosts: more than fit into comm.hosts",
                           n_ranks, n);
}

dpb_status dpb_hosts_adopt(const struct dpb_run_settings *run, bool interface,
                           struct dpb_config *config, uint32_t *n)
{
    const uint32_t n_workers = (uint32_t)(run->workers * run->learners);
    struct dpb_hosts hosts = {0};
    if (!dpb_world_is_rank())
        DPB_TRY(dpb_hosts_open(&hosts));
    *n = hosts.n;
    dpb_hosts_close(&hosts);
    if (*n == 0)
        return DPB_OK;
    if (interface && !dpb_config_get(config, "comm", "interface"))
        DPB_TRY(dpb_config_set(config, "comm", "interface", DPB_HOSTS_ADDRESSES, DPB_HOSTS_ORIGIN));
    if (dpb_config_get(config, "comm", "hosts") || n_workers + run->servers == 1)
        return DPB_OK;
    if (run->workers > *n && run->workers % *n != 0)
        return dpb_config_fail(
            config, DPB_USAGE, "run", "workers",
            "run.workers = %lld do not divide by the %u hosts of `dpbench hosts`; "
            "take a multiple, or say which host each rank is on by comm.hosts",
            (long long)run->workers, *n);
    const uint32_t each = run->workers > *n ? n_workers / *n : (uint32_t)run->learners;
    return spread(*n, each, n_workers, (uint32_t)run->servers, config);
}
