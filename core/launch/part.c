/* part.c - the launcher of a part that is not the head: see part.h. */
#include "launch/part.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"
#include "launch/channel.h"
#include "launch/part_messages.h"
#include "launch/meet.h"
#include "launch/ranks.h"
#include "launch/stall.h"
#include "machine/proc.h"

enum { TICK_MS = 100 };
#define FORCED_NS INT64_C(2000000000)   /* for the head to end the job after a second signal */
#define DESERTED_NS INT64_C(3000000000) /* ... after the end of this part's starter */

/* A rank of this part, as the head knows it. */
struct mirror {
    uint8_t *head;               /* the journal's head as it was sent last; NULL: another part's */
    uint64_t n_records;          /* sent */
    struct dpb_status_page page; /* sent last */
    bool ended;
};

struct part {
    struct dpb_job job; /* of this start */
    struct dpb_job_run run;
    struct dpb_channel *channel;
    uint32_t number;
    struct mirror *mirrors; /* by rank */
    int64_t pages_told_ns, journals_told_ns, pinged_ns;
    int64_t heard_ns;                 /* by dpb_ran_ns */
    int64_t offset_ns, round_trip_ns; /* the head's clock less this one, by the fastest ping */
    int64_t offset_error_ns;          /* half the way of the ping that offset_ns is of */
    int64_t missed_ns;                /* dpb_missed_ns when its loop came round last */
    int64_t woke_ns;                  /* from its last long stop; 0: the head has answered since */
    bool same_clock, over;
    bool head_ended;
    dpb_status again; /* whether the ranks' last start again succeeded */
    bool all_ended;   /* the head makes the result, however long it takes */
    bool said;        /* by the head: why the job ends */
    uint32_t n_signals;
    struct dpb_deadline give_up; /* a while after the second signal; 0: it has not come */
    struct dpb_deadline alone;   /* a while after this part's starter ended; 0: it is there */
    const char *lost;            /* the fate of the head */
    int exit_code;
};

/* ---- telling --------------------------------------------------------------------------------- */

static int64_t head_time(const struct part *part, int64_t time_ns)
{
    return time_ns != 0 ? time_ns + part->offset_ns : 0;
}

static void tell_page(struct part *part, uint32_t rank, bool anyway)
{
    struct dpb_status_page *page = dpb_board_page(part->run.board, rank), copy;
    struct dpb_status_page *last = &part->mirrors[rank].page;
    struct dpb_process *process = &part->run.processes[rank];
    struct {
        struct dpb_page_news news;
        struct dpb_status_page page;
    } said;
    struct dpb_proc proc = {0};
    uint32_t n_warnings = __atomic_load_n(&page->n_warnings, __ATOMIC_ACQUIRE);
    uint32_t n_facts = __atomic_load_n(&page->n_facts, __ATOMIC_ACQUIRE);
    int64_t failed_ns = __atomic_load_n(&page->failed_ns, __ATOMIC_ACQUIRE);
    memcpy(&copy, page, sizeof copy); /* entries that are counted or marked as there are whole */
    copy.n_warnings = n_warnings;
    copy.n_facts = n_facts;
    copy.failed_ns = head_time(part, failed_ns);
    copy.since_ns = head_time(part, copy.since_ns);
    copy.clock.offset_ns = part->offset_ns;
    copy.clock.error_ns = part->same_clock || part->round_trip_ns != 0 ? part->offset_error_ns : -1;
    dpb_stall_look_at(&part->run, rank, dpb_ran_ns());
    if (process->running)
        dpb_proc_read("", (int32_t)process->pid, &proc);
    said.news = (struct dpb_page_news){.silent_ns = dpb_ran_ns() - process->sign.sign_ns,
                                       .state = proc.state};
    said.page = copy;
    bool whole = copy.n_warnings != last->n_warnings || copy.n_facts != last->n_facts ||
                 copy.failed_ns != last->failed_ns || strcmp(copy.gpu, last->gpu) != 0;
    *last = copy;
    size_t bytes = sizeof said.news +
                   (whole || anyway ? sizeof copy : offsetof(struct dpb_status_page, status));
    dpb_channel_say(part->channel, DPB_CHANNEL_PAGE, rank, &said, bytes);
}

static void tell_piece(struct part *part, uint32_t rank, uint64_t offset, const void *bytes,
                       size_t n)
{
    uint8_t value[sizeof(struct dpb_journal_piece) + DPB_PART_PIECE_BYTES];
    const struct dpb_journal_piece piece = {offset};
    memcpy(value, &piece, sizeof piece);
    memcpy(value + sizeof piece, bytes, n);
    dpb_channel_say(part->channel, DPB_CHANNEL_JOURNAL, rank, value, sizeof piece + n);
}

/* Records [mirror->n_records, n), their times turned into the head's. */
static void tell_records(struct part *part, uint32_t rank, const uint8_t *journal, uint64_t n)
{
    const struct dpb_journal_shape *shape = &part->run.job->shape;
    struct mirror *mirror = &part->mirrors[rank];
    uint8_t piece[DPB_PART_PIECE_BYTES];
    uint64_t at_once = sizeof piece / shape->record_bytes;
    while (mirror->n_records < n) {
        uint64_t count = n - mirror->n_records < at_once ? n - mirror->n_records : at_once;
        uint64_t offset = shape->head_bytes + mirror->n_records * shape->record_bytes;
        memcpy(piece, journal + offset, count * shape->record_bytes);
        for (uint64_t i = 0; i < count; i++) {
            int64_t time_ns;
            uint8_t *at = piece + i * shape->record_bytes + shape->time_at;
            memcpy(&time_ns, at, sizeof time_ns);
            time_ns = head_time(part, time_ns);
            memcpy(at, &time_ns, sizeof time_ns);
        }
        tell_piece(part, rank, offset, piece, count * shape->record_bytes);
        mirror->n_records += count;
    }
}

/* Sends the written bytes of the journal from `end` on. */
static void tell_written(struct part *part, uint32_t rank, size_t end)
{
    size_t bytes, begin;
    const uint8_t *journal = dpb_board_journal(part->run.board, rank, &bytes);
    while (dpb_board_written(part->run.board, rank, end, &begin, &end))
        for (size_t at = begin; at < end; at += DPB_PART_PIECE_BYTES)
            tell_piece(part, rank, at, journal + at,
                       end - at < DPB_PART_PIECE_BYTES ? end - at : DPB_PART_PIECE_BYTES);
}

/* The records first: the head of the journal counts them. */
static void tell_journal(struct part *part, uint32_t rank)
{
    enum { BLOCK = 4096 };
    const struct dpb_journal_shape *shape = &part->run.job->shape;
    struct mirror *mirror = &part->mirrors[rank];
    size_t bytes;
    uint8_t *journal = dpb_board_journal(part->run.board, rank, &bytes), block[BLOCK];
    bytes -= shape->tail_bytes;
    if (mirror->ended && shape->record_bytes == 0)
        tell_written(part, rank, 0);
    else if (mirror->ended && shape->tail_bytes > 0)
        tell_written(part, rank, bytes);
    if (shape->record_bytes == 0)
        return;
    uint64_t n = __atomic_load_n((uint64_t *)(void *)(journal + shape->count_at), __ATOMIC_ACQUIRE);
    uint64_t capacity = (bytes - shape->head_bytes) / shape->record_bytes;
    tell_records(part, rank, journal, n < capacity ? n : capacity);
    for (size_t at = 0; at < shape->head_bytes; at += BLOCK) {
        size_t length = shape->head_bytes - at < BLOCK ? shape->head_bytes - at : BLOCK;
        memcpy(block, journal + at, length);
        if (at <= shape->count_at && shape->count_at < at + length)
            memcpy(block + shape->count_at - at, &mirror->n_records, sizeof mirror->n_records);
        if (memcmp(block, mirror->head + at, length) == 0)
            continue;
        memcpy(mirror->head + at, block, length);
        tell_piece(part, rank, at, block, length);
    }
}

static void tell_ping(struct part *part, int64_t now_ns)
{
    const struct dpb_ping ping = {.sent_ns = now_ns};
    part->pinged_ns = now_ns;
    dpb_channel_say(part->channel, DPB_CHANNEL_PING, part->number, &ping, sizeof ping);
}

static void tell_end(struct part *part, uint32_t rank)
{
    const struct dpb_process *process = &part->run.processes[rank];
    const struct dpb_ended_news news = {.wait_status = process->wait_status,
                                        .ended_ns = head_time(part, process->ended_ns)};
    part->mirrors[rank].ended = true;
    tell_page(part, rank, true);
    tell_journal(part, rank);
    dpb_channel_say(part->channel, DPB_CHANNEL_ENDED, rank, &news, sizeof news);
}

/* ---- hearing --------------------------------------------------------------------------------- */

static void on_control(struct part *part, const struct dpb_frame *frame, const void *value)
{
    struct dpb_post post;
    if (frame->value_bytes != sizeof post)
        return;
    memcpy(&post, value, sizeof post);
    if (dpb_board_apply(part->run.board, &post) && post.confirm_at != UINT64_MAX)
        dpb_channel_say(part->channel, DPB_CHANNEL_CONFIRM, frame->peer, NULL, 0);
}

/* Where another rank is. */
static void on_page(struct part *part, const struct dpb_frame *frame, const uint8_t *value)
{
    enum { KEPT = sizeof(uint32_t), SHORT = offsetof(struct dpb_status_page, status) };
    uint32_t rank = frame->peer;
    if (rank >= part->run.n_ranks || part->mirrors[rank].head ||
        frame->value_bytes != sizeof(struct dpb_page_news) + SHORT)
        return;
    struct dpb_status_page *page = dpb_board_page(part->run.board, rank);
    memcpy((uint8_t *)page + KEPT, value + sizeof(struct dpb_page_news) + KEPT, SHORT - KEPT);
    page->phase[sizeof page->phase - 1] = '\0';
    page->since_ns -= page->since_ns != 0 ? part->offset_ns : 0;
}

/* The fastest answer says most about the other clock; an old one less and less, as clocks drift. */
static void on_pong(struct part *part, const struct dpb_frame *frame, const void *value)
{
    struct dpb_ping ping;
    if (frame->value_bytes != sizeof ping)
        return;
    memcpy(&ping, value, sizeof ping);
    if (ping.sent_ns > part->woke_ns)
        part->woke_ns = 0;
    if (part->same_clock)
        return;
    int64_t now_ns = dpb_now_ns(), round_trip_ns = now_ns - ping.sent_ns;
    if (part->round_trip_ns != 0 && round_trip_ns > 2 * part->round_trip_ns)
        return;
    part->offset_ns = ping.head_ns - (ping.sent_ns + round_trip_ns / 2);
    part->offset_error_ns = (round_trip_ns + 1) / 2;
    if (part->round_trip_ns == 0 || round_trip_ns < part->round_trip_ns)
        part->round_trip_ns = round_trip_ns;
}

/* A board and mirrors without a word of an earlier start's ranks. */
static dpb_status open_start(struct part *part)
{
    struct dpb_job_run *run = &part->run;
    const struct dpb_job *job = &part->job;
    dpb_board_destroy(run->board);
    run->board = NULL;
    memset(run->processes, 0, run->n_ranks * sizeof *run->processes);
    for (uint32_t rank = 0; rank < run->n_ranks; rank++) {
        uint8_t *head = part->mirrors[rank].head;
        if (head)
            memset(head, 0, job->shape.head_bytes);
        part->mirrors[rank] = (struct mirror){.head = head};
    }
    DPB_TRY(dpb_board_create(run->n_ranks, job->journal_bytes, &run->board));
    for (uint32_t rank = 0; job->machines && rank < run->n_ranks; rank++)
        dpb_board_page(run->board, rank)->machine = job->machines[rank];
    return DPB_OK;
}

/* A piece of the checkpoint that the next start continues. */
static void on_kept(struct part *part, const struct dpb_frame *frame, const uint8_t *value)
{
    const int fd = part->job.kept.files[0];
    struct dpb_journal_piece piece;
    if (frame->value_bytes < sizeof piece || fd < 0)
        return;
    memcpy(&piece, value, sizeof piece);
    const size_t n = frame->value_bytes - sizeof piece;
    if ((piece.offset == 0 && ftruncate(fd, 0) != 0) ||
        pwrite(fd, value + sizeof piece, n, (off_t)piece.offset) != (ssize_t)n)
        part->again =
            dpb_fail(DPB_NO_MEMORY, "no memory for the checkpoint of rank 0's launcher: %s",
                     strerror(errno));
}

/* The head has heard of the end of all ranks. */
static dpb_status start_again(struct part *part, const struct dpb_frame *frame,
                              const uint8_t *value)
{
    struct dpb_party *party = part->job.party;
    struct dpb_again_news news;
    struct dpb_again next;
    if (frame->value_bytes < sizeof news || part->run.n_running > 0)
        return dpb_fail(DPB_PEER, "rank 0's launcher starts ranks again that have not ended");
    memcpy(&news, value, sizeof news);
    memcpy(party->secret, news.secret, DPB_SECRET_BYTES);
    explicit_bzero(&news.secret, sizeof news.secret);
    char *text = strndup((const char *)value + sizeof news, frame->value_bytes - sizeof news);
    DPB_TRY(dpb_allocated(text));
    const struct dpb_again head = {text, news.checkpoint};
    dpb_status status = part->job.follow(part->job.context, &head, &next);
    free(text);
    part->job.config = status == DPB_OK ? next.config : part->job.config;
    part->job.restarts--;
    DPB_THEN(status, open_start(part));
    DPB_THEN(status, dpb_party_reconnect(party));
    return status == DPB_OK ? dpb_job_start_ranks(&part->run) : status;
}

static void handle(struct part *part, const struct dpb_frame *frame, const void *value)
{
    struct dpb_job_run *run = &part->run;
    int32_t number = 0;
    if (frame->value_bytes == sizeof number)
        memcpy(&number, value, sizeof number);
    switch (frame->op) {
    case DPB_CHANNEL_CONTROL:
        on_control(part, frame, value);
        break;
    case DPB_CHANNEL_PAGE:
        on_page(part, frame, value);
        break;
    case DPB_CHANNEL_KILL:
        if (frame->peer < run->n_ranks)
            dpb_job_kill(run, frame->peer);
        break;
    case DPB_CHANNEL_END_JOB:
        dpb_board_end_job(run->board);
        break;
    case DPB_CHANNEL_INTERRUPT:
        dpb_board_interrupt(run->board, number);
        break;
    case DPB_CHANNEL_PONG:
        on_pong(part, frame, value);
        break;
    case DPB_CHANNEL_KEPT:
        on_kept(part, frame, value);
        break;
    case DPB_CHANNEL_AGAIN:
        DPB_THEN(part->again, start_again(part, frame, value));
        break;
    case DPB_CHANNEL_ALL_ENDED:
        part->all_ended = true;
        break;
    case DPB_CHANNEL_SAID:
        part->said = true;
        break;
    case DPB_CHANNEL_OVER:
        part->over = true;
        part->exit_code = number;
        break;
    default: /* messages that only parts send */
        break;
    }
}

/* With a silent head, part 1 gives up first and says so. */
static int64_t patience_ns(const struct part *part)
{
    return part->run.job->timeout_ns + (part->number == 1 ? 1 : 2) * DPB_PART_SILENCE_NS;
}

static void hear(struct part *part)
{
    struct dpb_frame frame;
    const void *value;
    char why[128];
    int found;
    bool open = dpb_channel_receive(part->channel) && dpb_channel_flush(part->channel);
    while ((found = dpb_channel_next(part->channel, &frame, &value, why)) > 0) {
        part->heard_ns = dpb_ran_ns();
        handle(part, &frame, value);
    }
    if (part->over)
        return;
    part->head_ended = found < 0 || !open;
    if (part->head_ended)
        part->lost = "has ended";
    else if (part->give_up.at_ns != 0 && dpb_deadline_passed(part->give_up))
        part->lost = "has not ended the job after a second signal";
    else if (!part->all_ended && dpb_ran_ns() - part->heard_ns > patience_ns(part))
        part->lost =
            "has not been heard of for longer than run.timeout_s: it is stopped, or its machine or "
            "link is down";
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Where the ranks can start again, SIGTERM ends this machine's part of the job alone. */
static void take_signals(struct part *part)
{
    for (int number; (number = dpb_job_next_signal(&part->run)) != 0;) {
        int32_t said = number;
        if (!dpb_signals_interrupts(&part->run.signals, number))
            continue;
        dpb_channel_say(part->channel, DPB_CHANNEL_INTERRUPT, part->number, &said, sizeof said);
        if (number == SIGTERM && part->job.restarts > 0) {
            part->over = true;
            part->exit_code = 128 + number;
        }
        if (++part->n_signals == 2)
            part->give_up = dpb_deadline_in(FORCED_NS);
    }
}

/* The head sees the starter end, too, and ends the job. If not, it is on another machine. */
static void look_for_starter(struct part *part)
{
    if (part->alone.at_ns == 0 && dpb_party_deserted(part->run.job->party))
        part->alone = dpb_deadline_in(DESERTED_NS);
    if (part->alone.at_ns == 0 || !dpb_deadline_passed(part->alone))
        return;
    part->over = true;
    part->exit_code = dpb_status_exit_code(DPB_PEER);
}

/* Whether a rank has ended; it is reaped. */
static bool reap(struct part *part, uint32_t rank)
{
    if (!dpb_job_reap(&part->run, rank))
        return false;
    part->run.processes[rank].running = false;
    part->run.n_running--;
    return true;
}

static void look(struct part *part)
{
    const int64_t now_ns = dpb_now_ns();
    const bool pages = now_ns - part->pages_told_ns >= DPB_PART_PAGE_NS,
               journals = now_ns - part->journals_told_ns >= DPB_PART_JOURNAL_NS;
    if (now_ns - part->pinged_ns >=
        DPB_PART_PING_NS) /* also while the others run on, or are concluded */
        tell_ping(part, now_ns);
    for (uint32_t rank = 0; rank < part->run.n_ranks; rank++) {
        if (!part->mirrors[rank].head || part->mirrors[rank].ended)
            continue;
        if (reap(part, rank) || !part->run.processes[rank].running) {
            tell_end(part, rank);
            continue;
        }
        if (pages)
            tell_page(part, rank, false);
        if (journals)
            tell_journal(part, rank);
    }
    part->pages_told_ns = pages ? now_ns : part->pages_told_ns;
    part->journals_told_ns = journals ? now_ns : part->journals_told_ns;
}

static void note_own_stop(struct part *part)
{
    const int64_t stopped_ns = dpb_missed_ns() - part->missed_ns;
    part->missed_ns += stopped_ns;
    if (stopped_ns >= part->run.job->timeout_ns)
        part->woke_ns = dpb_now_ns();
}

/* A lost head cannot report: the first of the others does. But a head that ended on its own may
 * have reported the cause, also the long stop of a part; it then sends that part nothing more. */
static void say_lost(const struct part *part)
{
    const struct dpb_party *party = part->run.job->party;
    if (part->said || (part->head_ended && part->woke_ns != 0))
        return;
    dpb_party_speak(party);
    dpb_log(DPB_LOG_ERROR, "the launcher of rank 0 (%s) %s; the job cannot go on and has no result",
            party->hosts[0], part->lost);
}

static void watch(struct part *part)
{
    while (!part->over && !part->lost && part->again == DPB_OK) {
        bool waits = part->channel->out.end > part->channel->out.begin;
        struct pollfd fds[2] = {
            {.fd = part->channel->fd, .events = (short)(POLLIN | (waits ? POLLOUT : 0))},
            {.fd = part->run.signal_fd, .events = POLLIN}};
        poll(fds, 2, TICK_MS);
        note_own_stop(part);
        hear(part);
        take_signals(part);
        look(part);
        look_for_starter(part);
    }
    if (part->lost) /* at once: mpirun kills this process a second after it lost the head */
        say_lost(part);
    dpb_job_kill_all(&part->run);
    /* A rank that the system does not let die is left behind: the head has reported it. */
    while (part->run.n_running > 0 && !dpb_deadline_passed(part->run.give_up)) {
        bool reaped = false;
        for (uint32_t rank = 0; rank < part->run.n_ranks; rank++)
            reaped = reap(part, rank) || reaped;
        if (!reaped)
            poll(NULL, 0, 2);
    }
}

static dpb_status begin(struct part *part)
{
    struct dpb_job_run *run = &part->run;
    const struct dpb_job *job = &part->job;
    const struct dpb_party *party = job->party;
    part->number = party->part;
    part->channel = &job->party->channels[0];
    part->same_clock = party->machines[0] == party->machines[dpb_party_first(party, party->part)];
    part->heard_ns = dpb_ran_ns();
    part->missed_ns = party->missed_ns; /* it may have been stopped since */
    run->job = job;
    run->n_ranks = party->n_ranks;
    run->signal_fd = -1;
    run->kill_at = dpb_deadline_in(-1);
    run->processes = calloc(run->n_ranks, sizeof *run->processes);
    part->mirrors = calloc(run->n_ranks, sizeof *part->mirrors);
    DPB_TRY(dpb_allocated(run->processes && part->mirrors));
    for (uint32_t rank = 0; rank < run->n_ranks; rank++) {
        if (!dpb_party_owns(party, rank))
            continue;
        part->mirrors[rank].head = calloc(1, job->shape.head_bytes + 1);
        DPB_TRY(dpb_allocated(part->mirrors[rank].head));
    }
    DPB_TRY(dpb_job_take_signals(run));
    DPB_TRY(open_start(part));
    tell_ping(part, dpb_now_ns());
    for (uint32_t rank = 0; rank < run->n_ranks; rank++)
        part->mirrors[rank].ended = party->rejoins;
    return party->rejoins ? DPB_OK : dpb_job_start_ranks(run);
}

dpb_status dpb_part_launch(const struct dpb_job *job, struct dpb_job_outcome *outcome)
{
    struct part *part = calloc(1, sizeof *part);
    DPB_TRY(dpb_allocated(part));
    part->job = *job;
    dpb_status status = begin(part);
    if (status == DPB_OK)
        watch(part);
    DPB_THEN(status, part->again);
    *outcome = (struct dpb_job_outcome){.status = DPB_PEER,
                                        .exit_code = part->over ? part->exit_code
                                                                : dpb_status_exit_code(DPB_PEER),
                                        .culprit = UINT32_MAX};
    dpb_job_release_signals(&part->run);
    dpb_board_destroy(part->run.board);
    free(part->run.processes);
    for (uint32_t rank = 0; part->mirrors && rank < part->run.n_ranks; rank++)
        free(part->mirrors[rank].head);
    free(part->mirrors);
    free(part);
    return status;
}
