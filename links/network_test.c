/* network_test.c - the ranks of `dpbench links network`: see network_test.h. */
#include "links/network_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "lib/tcp/tcp_connect.h"
#include "measure/journal.h"
#include "world/store.h"
#include "world/world.h"

/* Others wait for a round for so many times the time that a pair takes if all goes well. */
enum { PAIR_PATIENCE = 4 };

static const int64_t longest_message_ns = INT64_C(1000000000);

static bool has_link_size(const struct dpb_settings *settings)
{
    const struct dpb_links_limits limits = {.min_bytes = settings->comm_test.min_bytes,
                                            .max_bytes = settings->comm_test.max_bytes};
    bool any = false;
    for (uint32_t i = 0; i < DPB_LINKS_SIZES; i++)
        any = any || dpb_links_wanted(&limits, dpb_links_size(i));
    return any;
}

/* An option of TCP, or the choice of it, says that the strategy's link is the one measured. */
static dpb_status refuse_transport(const struct dpb_experiment *experiment)
{
    const struct dpb_plugin *comm = experiment->plugins[DPB_PLUGIN_COMM];
    const struct dpb_setting *transport = dpb_config_get(experiment->config, "comm", "transport");
    const bool named = transport && strcmp(transport->value, "tcp") != 0;
    if (!named &&
        (dpb_options_find(comm->options, "port") || dpb_options_find(comm->options, "transport")))
        return DPB_OK;
    return dpb_config_fail(
        experiment->config, DPB_UNSUPPORTED, "comm", named ? "transport" : "name",
        "comm.%s = %s: `dpbench links network` measures pairs over TCP; pairs "
        "over other transports are not built; take comm.name = ring_tcp, or measure two ranks "
        "of this strategy by `dpbench comm`",
        named ? "transport" : "name", named ? transport->value : comm->name);
}

dpb_status dpb_network_refuse(const struct dpb_experiment *experiment)
{
    static const char *const unused[] = {
        "sizes", "step_factor", "iterations", "warmup_iterations", "barrier", "codecs"};
    for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++)
        if (dpb_config_get(experiment->config, "comm_test", unused[i]))
            return dpb_config_fail(
                experiment->config, DPB_UNSUPPORTED, "comm_test", unused[i],
                "comm_test.%s belongs to `dpbench comm`; `dpbench links network` "
                "takes comm_test.seconds, min_bytes and max_bytes",
                unused[i]);
    DPB_TRY(refuse_transport(experiment));
    if (!has_link_size(&experiment->settings))
        return dpb_config_fail(experiment->config, DPB_USAGE, "comm_test", "max_bytes",
                               "no message has comm_test.min_bytes to comm_test.max_bytes: they "
                               "have 1 KiB, 4 KiB, 16 KiB and so on, to %llu MiB",
                               (unsigned long long)dpb_links_size(DPB_LINKS_SIZES - 1) >> 20);
    if (experiment->n_machines < 2)
        return dpb_fail(DPB_USAGE,
                        "all ranks are on one machine: there is no link between machines; start "
                        "one rank or more on each by mpirun or srun (docs/launching.md)");
    return DPB_OK;
}

uint32_t dpb_network_rank(const struct dpb_experiment *experiment, uint32_t machine)
{
    uint32_t rank = 0;
    while (experiment->machines[rank] != machine)
        rank++;
    return rank;
}

/* An option of the strategy's; "": it was not given. */
static const char *option(const struct dpb_experiment *experiment, const char *key)
{
    const struct dpb_setting *setting = dpb_config_get(experiment->config, "comm", key);
    return setting ? setting->value : "";
}

/* To the first rank of the other machine, which calls this, too. */
static dpb_status connect_pair(const struct dpb_experiment *experiment, const char *name,
                               uint32_t peer, bool dials, int *fd)
{
    const struct dpb_tcp_options tcp = {.interface = option(experiment, "interface"),
                                        .port = strtoll(option(experiment, "port"), NULL, 10)};
    struct dpb_connect_peer other = {.rank = peer, .dialled = dials};
    const struct dpb_connect_args args = {.name = name,
                                          .what = "the pair",
                                          .shape = option(experiment, "interface"),
                                          .rank = dpb_world.rank,
                                          .keeper = dials ? dpb_world.rank : peer,
                                          .n_streams = 1,
                                          .peers = &other,
                                          .n_peers = 1};
    DPB_TRY(dpb_tcp_connect(&dpb_host, &tcp, &args));
    *fd = other.fds[0];
    return DPB_OK;
}

static bool interrupted(void)
{
    return dpb_board_interrupted(dpb_world.board) != 0;
}

static dpb_status measure_way(const struct dpb_links_limits *limits, struct dpb_links_line *line,
                              uint32_t to)
{
    struct dpb_network_journal *journal = dpb_board_journal(dpb_world.board, dpb_world.rank, NULL);
    struct dpb_network_row *row = &journal->rows[to];
    DPB_TRY(dpb_links_line_measure(limits, line, &row->latency, row->rate));
    row->measured = true;
    return DPB_OK;
}

/* Both ways, by this rank and one of another machine; the lower machine's sends first. After a
 * signal, each end still answers the other, which may not have seen the signal yet. */
static dpb_status measure_pair(const struct dpb_experiment *experiment, uint32_t machine,
                               uint32_t other)
{
    const struct dpb_links_limits limits = {.window_ns = experiment->settings.comm_test.seconds_ns /
                                                         DPB_LINKS_WINDOWS,
                                            .min_bytes = experiment->settings.comm_test.min_bytes,
                                            .max_bytes = experiment->settings.comm_test.max_bytes,
                                            .stopped = interrupted};
    const bool first = machine < other;
    const uint32_t low = first ? machine : other, high = first ? other : machine;
    char text[64], name[48];
    int fd;
    snprintf(text, sizeof text, "machines %u and %u", low, high);
    snprintf(name, sizeof name, "machines/%u/%u", low, high);
    DPB_TRY(connect_pair(experiment, name, dpb_network_rank(experiment, other), first, &fd));
    struct dpb_links_line line;
    dpb_status status = dpb_links_line_open(text, fd, &limits, &line);
    line.longest_ns = longest_message_ns;
    DPB_THEN(status, dpb_links_line_limit(&line, dpb_world.timeout_ns));
    bool stopped = false;
    for (int way = 0; way < 2 && status == DPB_OK; way++) {
        status =
            (way == 0) == first ? measure_way(&limits, &line, other) : dpb_links_line_answer(&line);
        if (status == DPB_INTERRUPTED) {
            stopped = true;
            status = DPB_OK;
        }
    }
    dpb_links_line_close(&line);
    return status == DPB_OK && stopped ? DPB_INTERRUPTED : status;
}

/* Rank 0 says whether the round begins. */
static dpb_status begins(const char *name, bool *more)
{
    uint8_t answer = !interrupted();
    DPB_TRY(dpb_store_from_0(name, &answer, sizeof answer));
    *more = answer != 0;
    return DPB_OK;
}

/* Both ways, latency and rates, and the delay of a message beyond its time. */
static int64_t round_limit_ns(const struct dpb_settings *settings)
{
    return settings->run.timeout_ns +
           PAIR_PATIENCE * 2 * (DPB_LINKS_SIZES + 1) *
               (settings->comm_test.seconds_ns + DPB_LINKS_WINDOWS * longest_message_ns);
}

/* All ranks end after the same round: a rank whose pair was interrupted waits for the others. */
static dpb_status run_rounds(const struct dpb_experiment *experiment)
{
    dpb_status status = DPB_OK;
    const uint32_t n = experiment->n_machines, own = experiment->machines[dpb_world.rank];
    const bool measures = dpb_network_rank(experiment, own) == dpb_world.rank;
    for (uint32_t round = 0; round < dpb_network_rounds(n); round++) {
        const uint32_t other = dpb_network_opponent(n, round, own);
        char name[48];
        bool more;
        snprintf(name, sizeof name, "round/%u", round);
        DPB_TRY(begins(name, &more));
        if (!more)
            return DPB_INTERRUPTED;
        dpb_world_note("measure", UINT64_MAX, UINT32_MAX);
        if (measures && other < n) {
            dpb_status measured = measure_pair(experiment, own, other);
            if (measured != DPB_OK && measured != DPB_INTERRUPTED)
                return measured;
            status = measured != DPB_OK ? measured : status;
        }
        DPB_TRY(dpb_store_barrier(name, round_limit_ns(&experiment->settings)));
    }
    return status;
}

dpb_status dpb_network_test_run(struct dpb_experiment *experiment)
{
    dpb_world.timeout_ns = experiment->settings.run.timeout_ns;
    dpb_status status = run_rounds(experiment);
    if (status == DPB_OK || status == DPB_INTERRUPTED) {
        dpb_status ended = dpb_store_barrier("end", 0);
        status = ended != DPB_OK ? ended : status;
    }
    return status;
}
