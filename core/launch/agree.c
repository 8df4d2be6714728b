/* agree.c - see agree.h. */
#include "launch/agree.h"

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

/* DPB_CHANNEL_VERDICT; where the job begins, the seats of the part's ranks follow. */
struct verdict {
    int32_t exit_code; /* not 0: the job does not begin */
    uint8_t secret[DPB_SECRET_BYTES];
};

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

/* The head's: a part's reason against beginning; it is printed. `own` is the head's text. */
static dpb_status judge(const struct dpb_party *party, const char *own, uint32_t part,
                        const struct reported *one)
{
    const uint32_t rank = dpb_party_first(party, part);
    char name[128], a[128], b[128];
    if (strcmp(one->report.version, DPB_VERSION) != 0)
        return dpb_fail(DPB_USAGE,
                        "the ranks differ in the version of dpbench: rank 0 (%s) has %s, rank "
                        "%u (%s) has %s",
                        party->hosts[0], DPB_VERSION, rank, party->hosts[rank],
                        one->report.version);
    if (one->report.status != DPB_OK)
        return dpb_fail((dpb_status)one->report.status, "rank %u (%s): %s", rank,
                        party->hosts[rank], one->text);
    if (find_difference(own, one->text, name, a, b))
        return dpb_fail(DPB_USAGE,
                        "the ranks were started with different options: %s is '%s' at rank 0 "
                        "(%s) and '%s' at rank %u (%s)",
                        name, a, party->hosts[0], b, rank, party->hosts[rank]);
    return DPB_OK;
}

/* Ranks of one machine that may use the same processors divide them among themselves. */
static struct dpb_seat seat_of(const struct dpb_party *party, const struct reported *reports,
                               uint32_t n_workers, uint32_t self)
{
    const struct report *own = &reports[party->parts[self]].report;
    struct dpb_seat place = {0};
    uint32_t servers_before = 0;
    for (uint32_t rank = 0; rank < party->n_ranks; rank++) {
        if (party->machines[rank] != party->machines[self] ||
            memcmp(reports[party->parts[rank]].report.affinity, own->affinity, AFFINITY_BYTES) != 0)
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

/* The head waits for a part's report; a part that says nothing has died, or is stopped. */
static dpb_status collect(struct dpb_party *party, uint32_t part, struct dpb_deadline deadline,
                          struct reported *reported)
{
    const uint32_t rank = dpb_party_first(party, part);
    struct dpb_frame frame;
    const void *value;
    int found;
    DPB_TRY(dpb_party_await(party, &party->channels[part], DPB_CHANNEL_REPORT, deadline, &frame,
                            &value, &found));
    if (found == 0)
        return dpb_party_missed(
            party,
            "the launcher of rank %u (%s) has not read its configuration within "
            "%.1f s: it is stopped, or set a larger run.timeout_s",
            rank, party->hosts[rank], (double)party->timeout_ns * 1e-9);
    if (found < 0 || !take_report(reported, value, frame.value_bytes))
        return dpb_fail(DPB_PEER, "the launcher of rank %u (%s) has ended before the job began",
                        rank, party->hosts[rank]);
    party->launcher_pids[part] = reported->report.pid;
    return DPB_OK;
}

/* The seats of a part's ranks, in order; returns how many. `seats`: room for all. */
static uint32_t seats_of(const struct dpb_party *party, uint32_t part, struct dpb_seat *seats)
{
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < party->n_ranks; rank++)
        if (party->parts[rank] == part)
            seats[n++] = party->seats[rank];
    return n;
}

/* To part `part`; `said` has room for a verdict and the seats of all ranks. */
static void say_verdict(struct dpb_party *party, uint32_t part, int exit_code, uint8_t *said)
{
    struct verdict verdict = {.exit_code = exit_code};
    struct dpb_seat *seats = (struct dpb_seat *)(void *)(said + sizeof verdict);
    memcpy(verdict.secret, party->secret, DPB_SECRET_BYTES);
    memcpy(said, &verdict, sizeof verdict);
    const uint32_t n = exit_code == 0 ? seats_of(party, part, seats) : 0;
    dpb_channel_say(&party->channels[part], DPB_CHANNEL_VERDICT, part, said,
                    sizeof verdict + n * sizeof *seats);
    explicit_bzero(&verdict, sizeof verdict);
}

static dpb_status agree_as_head(struct dpb_party *party, dpb_status status, const char *text,
                                uint32_t n_workers, int *exit_code)
{
    const size_t most = sizeof(struct verdict) + party->n_ranks * sizeof *party->seats;
    struct reported *reports = calloc(party->n_parts, sizeof *reports);
    uint8_t *said = calloc(1, most);
    if (!reports || !said) {
        free(reports);
        free(said);
        return dpb_allocated(NULL);
    }
    make_report(status, &reports[0].report);
    reports[0].text = strdup(text);
    party->launcher_pids[0] = (int32_t)getpid();
    const struct dpb_deadline deadline = dpb_party_deadline(party);
    dpb_status collected = DPB_OK;
    for (uint32_t part = 1; part < party->n_parts; part++)
        DPB_THEN(collected, collect(party, part, deadline, &reports[part]));
    DPB_THEN(status, collected);
    for (uint32_t part = 1; part < party->n_parts; part++)
        DPB_THEN(status, judge(party, text, part, &reports[part]));
    if (status == DPB_OK && party->listener >= 0) {
        party->config = strdup(text);
        status = dpb_allocated(party->config);
    }
    *exit_code = dpb_status_exit_code(status);
    dpb_random_bytes(party->secret, DPB_SECRET_BYTES);
    for (uint32_t rank = 0; status == DPB_OK && rank < party->n_ranks; rank++)
        party->seats[rank] = seat_of(party, reports, n_workers, rank);
    for (uint32_t part = 0; part < party->n_parts; part++) {
        if (part > 0)
            say_verdict(party, part, *exit_code, said);
        free(reports[part].text);
    }
    free(reports);
    explicit_bzero(said, most);
    free(said);
    return status;
}

/* The head's verdict; false: it is none. */
static bool take_verdict(struct dpb_party *party, const void *value, size_t bytes, int *exit_code)
{
    struct verdict verdict;
    uint32_t n = 0;
    if (bytes < sizeof verdict)
        return false;
    memcpy(&verdict, value, sizeof verdict);
    const uint8_t *seats = (const uint8_t *)value + sizeof verdict;
    for (uint32_t rank = 0; verdict.exit_code == 0 && rank < party->n_ranks; rank++)
        if (party->parts[rank] == party->part &&
            sizeof verdict + ++n * sizeof *party->seats <= bytes)
            memcpy(&party->seats[rank], seats + (n - 1) * sizeof *party->seats,
                   sizeof *party->seats);
    if (bytes != sizeof verdict + n * sizeof *party->seats)
        return false;
    *exit_code = verdict.exit_code;
    memcpy(party->secret, verdict.secret, DPB_SECRET_BYTES);
    return true;
}

static dpb_status agree_as_part(struct dpb_party *party, dpb_status status, const char *text,
                                int *exit_code)
{
    size_t length = strlen(text), bytes = sizeof(struct report) + length;
    struct dpb_channel *channel = &party->channels[0];
    struct report *report = calloc(1, bytes);
    *exit_code = dpb_status_exit_code(DPB_PEER);
    DPB_TRY(dpb_allocated(report));
    make_report(status, report);
    /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): its length goes with it */
    memcpy(report + 1, text, length);
    /* A head that did not wait for all has sent its verdict, and closed the connection, already. */
    bool open = dpb_channel_receive(channel) &&
                dpb_channel_say(channel, DPB_CHANNEL_REPORT, party->part, report, bytes);
    free(report);
    if (!open)
        dpb_channel_receive(channel); /* messages that came before the connection broke */
    /* The head may have just begun to wait for the last one to join. */
    struct dpb_deadline deadline = dpb_party_deadline(party);
    deadline.at_ns += party->timeout_ns;
    for (;;) {
        struct dpb_frame frame;
        const void *value;
        char why[128];
        if (dpb_channel_next(channel, &frame, &value, why) > 0 && frame.op == DPB_CHANNEL_VERDICT &&
            take_verdict(party, value, frame.value_bytes, exit_code))
            return *exit_code == 0 ? DPB_OK : DPB_PEER;
        if (!open || dpb_deadline_passed(deadline))
            break;
        struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
        if (channel->out.end > channel->out.begin)
            ready.events |= POLLOUT;
        poll(&ready, 1, DPB_PARTY_TICK_MS);
        DPB_TRY(dpb_party_look(party));
        dpb_channel_flush(channel);
        open = dpb_channel_receive(channel);
    }
    /* If mpirun or srun ends all parts for a cause that another has named, this one goes, too. */
    if (!open)
        poll(NULL, 0, ENDED_BESIDE_MS);
    dpb_party_speak(party);
    return open ? dpb_party_missed(
                      party,
                      "the launcher of rank 0 (%s) has not begun the job within %.1f s: it is "
                      "stopped, or set a larger run.timeout_s",
                      party->hosts[0], (double)party->timeout_ns * 1e-9)
                : dpb_fail(DPB_PEER, "the launcher of rank 0 (%s) has ended before the job began",
                           party->hosts[0]);
}

dpb_status dpb_party_agree_again(struct dpb_party *party, uint32_t part, dpb_status status)
{
    const size_t most = sizeof(struct verdict) + party->n_ranks * sizeof *party->seats;
    struct reported reported = {.text = NULL};
    uint8_t *said = calloc(1, most);
    DPB_THEN(status, dpb_allocated(said));
    DPB_THEN(status, collect(party, part, dpb_party_deadline(party), &reported));
    DPB_THEN(status, judge(party, party->config, part, &reported));
    if (said)
        say_verdict(party, part, dpb_status_exit_code(status), said);
    free(reported.text);
    free(said);
    return status;
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
    dpb_party_begin_looks(party); /* reading configuration and data took time */
    return dpb_party_is_head(party) ? agree_as_head(party, status, text, n_workers, exit_code)
                                    : agree_as_part(party, status, text, exit_code);
}

void dpb_party_refuse(struct dpb_party *party, dpb_status status)
{
    const struct verdict verdict = {.exit_code = dpb_status_exit_code(status)};
    for (uint32_t part = 1; party->channels && part < party->n_parts; part++)
        dpb_channel_say(&party->channels[part], DPB_CHANNEL_VERDICT, part, &verdict,
                        sizeof verdict);
}
