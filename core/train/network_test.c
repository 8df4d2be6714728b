/* network_test.c - the ranks of `dpbench links network`: see network_test.h. */
#include "train/network_test.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/tcp/tcp_connect.h"
#include "world/store.h"
#include "world/world.h"

/* Others wait for a pair for so many times the time that the pair takes if all goes well. */
enum { PAIR_PATIENCE = 4 };

static const int64_t longest_message_ns = INT64_C(1000000000);

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
    DPB_TRY(dpb_tcp_connect(&dpb_host, &tcp, false, &args));
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
static dpb_status measure_pair(const struct dpb_experiment *experiment, const char *name,
                               uint32_t machine, uint32_t other)
{
    const struct dpb_links_limits limits = {.window_ns = experiment->settings.comm_test.seconds_ns /
                                                         DPB_LINKS_WINDOWS,
                                            .min_bytes = experiment->settings.comm_test.min_bytes,
                                            .max_bytes = experiment->settings.comm_test.max_bytes,
                                            .stopped = interrupted};
    const bool first = machine < other;
    char text[64];
    int fd;
    snprintf(text, sizeof text, "machines %u and %u", first ? machine : other,
             first ? other : machine);
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

/* Rank 0 says whether the pair begins. */
static dpb_status begins(const char *name, bool *more)
{
    uint8_t answer = !interrupted();
    DPB_TRY(dpb_store_from_0(name, &answer, sizeof answer));
    *more = answer != 0;
    return DPB_OK;
}

/* Both ways, latency and rates, and the delay of a message beyond its time. */
static int64_t pair_limit_ns(const struct dpb_settings *settings)
{
    return settings->run.timeout_ns +
           PAIR_PATIENCE * 2 * (DPB_LINKS_SIZES + 1) *
               (settings->comm_test.seconds_ns + DPB_LINKS_WINDOWS * longest_message_ns);
}

/* All ranks end after the same pair: a rank whose pair was interrupted waits for the others. */
static dpb_status run_pairs(const struct dpb_experiment *experiment)
{
    dpb_status status = DPB_OK;
    const uint32_t own = experiment->machines[dpb_world.rank];
    const bool measures = dpb_network_rank(experiment, own) == dpb_world.rank;
    for (uint32_t a = 0; a < experiment->n_machines; a++) {
        for (uint32_t b = a + 1; b < experiment->n_machines; b++) {
            char name[48];
            bool more;
            snprintf(name, sizeof name, "machines/%u/%u", a, b);
            DPB_TRY(begins(name, &more));
            if (!more)
                return DPB_INTERRUPTED;
            dpb_world_note("measure", UINT64_MAX, UINT32_MAX);
            if (measures && (own == a || own == b)) {
                dpb_status measured = measure_pair(experiment, name, own, own == a ? b : a);
                if (measured != DPB_OK && measured != DPB_INTERRUPTED)
                    return measured;
                status = measured != DPB_OK ? measured : status;
            }
            DPB_TRY(dpb_store_barrier(name, pair_limit_ns(&experiment->settings)));
        }
    }
    return status;
}

dpb_status dpb_network_test_run(struct dpb_experiment *experiment)
{
    dpb_world.timeout_ns = experiment->settings.run.timeout_ns;
    dpb_status status = run_pairs(experiment);
    if (status == DPB_OK || status == DPB_INTERRUPTED) {
        dpb_status ended = dpb_store_barrier("end", 0);
        status = ended != DPB_OK ? ended : status;
    }
    return status;
}
