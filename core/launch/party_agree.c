/* party_agree.c - whether a job of several launchers begins: see party.h. */
#include <jansson.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/each.h"
#include "base/log.h"
#include "launch/party_parts.h"

enum { AFFINITY_BYTES = 512, VERSION_BYTES = 32, ENDED_BESIDE_MS = 500 };

/* A part's report on itself; the configuration, or the reason of its refusal, follows. */
struct report {
    int32_t status, pid;
    char version[VERSION_BYTES];
    uint8_t affinity[AFFINITY_BYTES]; /* the processors that it may use */
};

/* One part's report, as the head keeps it. */
struct reported {
    struct report report;
    char *text; /* NULL: not here yet */
};

static void make_report(dpb_status status, struct report *report)
{
    *report = (struct report){.status = (int32_t)status, .pid = (int32_t)getpid()};
    snprintf(report->version, sizeof report->version, "%s", DPB_VERSION);
    sched_getaffinity(0, sizeof report->affinity, (cpu_set_t *)(void *)report->affinity);
}

static bool take_report(struct reported *reported, const void *value, size_t bytes)
{
    if (bytes < sizeof reported->report || reported->text)
        return false;
    memcpy(&reported->report, value, sizeof reported->report);
    reported->report.version[VERSION_BYTES - 1] = '\0';
    reported->text =
        strndup((const char *)value + sizeof reported->report, bytes - sizeof reported->report);
    return reported->text != NULL;
}

static const char *value_of(const json_t *entry, char buffer[64])
{
    const char *text = dpb_config_text(json_object_get(entry, "value"), buffer, 64);
    return text ? text : "(not given)";
}

/* The first option in which two configurations differ, as "section.key", and the two values. */
static bool find_difference(const char *a_text, const char *b_text, char name[128], char a[128],
                            char b[128])
{
    json_t *both[2] = {json_loads(a_text, 0, NULL), json_loads(b_text, 0, NULL)};
    bool found = false;
    for (int side = 0; side < 2; side++)
        dpb_each_member(both[side], section, keys)
            dpb_each_member(keys, key, entry) {
                const json_t *other =
                    json_object_get(json_object_get(both[1 - side], section), key);
                char my_number[64], his_number[64]; /* a result's, of rerun */
                const char *mine = value_of(entry, my_number), *his = value_of(other, his_number);
                if (found || strcmp(mine, his) == 0)
                    continue;
                snprintf(name, 128, "%s.%s", section, key);
                snprintf(a, 128, "%s", side == 0 ? mine : his);
                snprintf(b, 128, "%s", side == 0 ? his : mine);
                found = true;
            }
    json_decref(both[0]);
    json_decref(both[1]);
    return found;
}

/* The head's: the reason against beginning; it is printed. */
static dpb_status judge(const struct dpb_party *party, const struct reported *reports)
{
    char name[128], a[128], b[128];
    if (reports[0].report.status != DPB_OK)
        return (dpb_status)reports[0].report.status; /* has been said */
    for (uint32_t rank = 1; rank < party->n_ranks; rank++) {
        const struct reported *one = &reports[rank];
        if (strcmp(one->report.version, reports[0].report.version) != 0)
            return dpb_fail(DPB_USAGE,
                            "the ranks differ in the version of dpbench: rank 0 (%s) has %s, rank "
                            "%u (%s) has %s",
                            party->hosts[0], reports[0].report.version, rank, party->hosts[rank],
                            one->report.version);
        if (one->report.status != DPB_OK)
            return dpb_fail((dpb_status)one->report.status, "rank %u (%s): %s", rank,
                            party->hosts[rank], one->text);
        if (find_difference(reports[0].text, one->text, name, a, b))
            return dpb_fail(DPB_USAGE,
                            "the ranks were started with different options: %s is '%s' at rank 0 "
                            "(%s) and '%s' at rank %u (%s)",
                            name, a, party->hosts[0], b, rank, party->hosts[rank]);
    }
    return DPB_OK;
}

/* Ranks of one machine that may use the same processors divide them among themselves. */
static struct dpb_seat place_of(const struct dpb_party *party, const struct reported *reports,
                                uint32_t n_workers, uint32_t self)
{
    struct dpb_seat place = {0};
    uint32_t servers_before = 0;
    for (uint32_t rank = 0; rank < party->n_ranks; rank++) {
        if (party->machines[rank] != party->machines[self] ||
            memcmp(reports[rank].report.affinity, reports[self].report.affinity, AFFINITY_BYTES) !=
                0)
            continue;
        bool worker = rank < n_workers;
        if (rank < self && worker == (self < n_workers)) {
            place.index += worker;
            servers_before += !worker;
        }
        place.n_workers += worker;
        place.n_servers += !worker;
    }
    if (self >= n_workers)
        place.index = place.n_workers + servers_before;
    return place;
}

/* The head waits for the reports of all; a part that says nothing has died, or is stopped. */
static dpb_status collect(struct dpb_party *party, struct reported *reports)
{
    const int64_t deadline_ns = party_deadline(party);
    for (uint32_t rank = 1; rank < party->n_ranks; rank++) {
        struct link *link = &party->links[rank];
        while (!reports[rank].text) {
            struct dpb_frame frame;
            const void *value;
            char why[128] = "";
            struct pollfd ready = {.fd = link->fd, .events = POLLIN};
            poll(&ready, 1, PARTY_TICK_MS);
            DPB_TRY(party_look(party));
            bool open = link_receive(link);
            int found = link_next(link, &frame, &value, why);
            if (found > 0 && frame.op == LINK_REPORT &&
                take_report(&reports[rank], value, frame.value_bytes))
                continue;
            if (found == 0 && open && dpb_now_ns() <= deadline_ns)
                continue;
            if (found == 0 && open)
                return party_missed(
                    party,
                    "the launcher of rank %u (%s) has not read its configuration within "
                    "%.1f s: it is stopped, or set a larger run.timeout_s",
                    rank, party->hosts[rank], (double)party->timeout_ns * 1e-9);
            return dpb_fail(DPB_PEER, "the launcher of rank %u (%s) %s", rank, party->hosts[rank],
                            found == 0 ? "has ended before the job began" : "sent a wrong message");
        }
        party->launcher_pids[rank] = reports[rank].report.pid;
    }
    return DPB_OK;
}

static dpb_status agree_as_head(struct dpb_party *party, dpb_status status, const char *text,
                                uint32_t n_workers, int *exit_code)
{
    struct reported *reports = calloc(party->n_ranks, sizeof *reports);
    DPB_TRY(dpb_allocated(reports));
    make_report(status, &reports[0].report);
    reports[0].text = strdup(text);
    party->launcher_pids[0] = (int32_t)getpid();
    dpb_status collected = collect(party, reports);
    DPB_THEN(status, collected);
    DPB_THEN(status, judge(party, reports));
    *exit_code = dpb_status_exit_code(status);
    dpb_random_bytes(party->secret, DPB_SECRET_BYTES);
    for (uint32_t rank = 0; rank < party->n_ranks; rank++) {
        struct verdict verdict = {.exit_code = *exit_code};
        memcpy(verdict.secret, party->secret, DPB_SECRET_BYTES);
        if (status == DPB_OK)
            verdict.place = place_of(party, reports, n_workers, rank);
        if (rank == 0)
            party->place = verdict.place;
        else
            link_say(&party->links[rank], LINK_VERDICT, rank, &verdict, sizeof verdict);
        free(reports[rank].text);
    }
    free(reports);
    return status;
}

static dpb_status agree_as_part(struct dpb_party *party, dpb_status status, const char *text,
                                int *exit_code)
{
    size_t length = strlen(text), bytes = sizeof(struct report) + length;
    struct link *link = &party->links[0];
    struct report *report = malloc(bytes);
    *exit_code = dpb_status_exit_code(DPB_PEER);
    DPB_TRY(dpb_allocated(report));
    make_report(status, report);
    /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): its length goes with it */
    memcpy(report + 1, text, length);
    /* A head that did not wait for all has sent its verdict, and closed the connection, already. */
    bool open = link_receive(link) && link_say(link, LINK_REPORT, party->rank, report, bytes);
    free(report);
    if (!open)
        link_receive(link); /* messages that came before the connection broke */
    /* The head may have just begun to wait for the last one to join. */
    const int64_t deadline_ns = party_deadline(party) + party->timeout_ns;
    for (;;) {
        struct dpb_frame frame;
        const void *value;
        char why[128];
        if (link_next(link, &frame, &value, why) > 0 && frame.op == LINK_VERDICT &&
            frame.value_bytes == sizeof(struct verdict)) {
            struct verdict verdict;
            memcpy(&verdict, value, sizeof verdict);
            *exit_code = verdict.exit_code;
            party->place = verdict.place;
            memcpy(party->secret, verdict.secret, DPB_SECRET_BYTES);
            return verdict.exit_code == 0 ? DPB_OK : DPB_PEER;
        }
        if (!open || dpb_now_ns() >= deadline_ns)
            break;
        struct pollfd ready = {.fd = link->fd, .events = POLLIN};
        if (link->out.end > link->out.begin)
            ready.events |= POLLOUT;
        poll(&ready, 1, PARTY_TICK_MS);
        DPB_TRY(party_look(party));
        link_flush(link);
        open = link_receive(link);
    }
    /* If mpirun or srun ends all parts for a cause that another has named, this one goes, too. */
    if (!open)
        poll(NULL, 0, ENDED_BESIDE_MS);
    dpb_party_speak(party);
    return open ? party_missed(
                      party,
                      "the launcher of rank 0 (%s) has not begun the job within %.1f s: it is "
                      "stopped, or set a larger run.timeout_s",
                      party->hosts[0], (double)party->timeout_ns * 1e-9)
                : dpb_fail(DPB_PEER, "the launcher of rank 0 (%s) has ended before the job began",
                           party->hosts[0]);
}

dpb_status dpb_party_agree(struct dpb_party *party, dpb_status status, const char *config,
                           uint32_t n_workers, int *exit_code)
{
    const char *text = status == DPB_OK ? config : dpb_first_error(NULL);
    if (strlen(text) > DPB_STORE_VALUE_BYTES / 2) {
        status = dpb_fail(DPB_USAGE, "a configuration of more than 512 KiB is too long for a job "
                                     "of several launchers");
        text = dpb_first_error(NULL);
    }
    party->looked_ns = dpb_now_ns(); /* reading configuration and data took time */
    return dpb_party_is_head(party) ? agree_as_head(party, status, text, n_workers, exit_code)
                                    : agree_as_part(party, status, text, exit_code);
}
