/* head.c - the side of rank 0's launcher towards those of the other parts: see head.h. */
#include "launch/head.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"
#include "launch/channel.h"
#include "launch/outcome.h"
#include "launch/part_messages.h"
#include "launch/meet.h"
#include "launch/ranks.h"
#include "machine/tcp.h"

#define LAST_WORDS_NS INT64_C(500000000) /* between a rank's end and that of its connection */
#define KILLED_NS INT64_C(3000000000)    /* without a message from a part that must end its rank */
/* How often the others hear where the ranks are, at least where there are few. */
#define TELL_NS INT64_C(1000000000)
enum { DRAIN_TICK_MS = 10, DRAIN_BYTES = 4 << 20 /* of a checkpoint, on their way to a part */ };

/* ---- control words --------------------------------------------------------------------------- */

/* Ranks of this part write on this board themselves. A post that all must have seen is confirmed by
 * each part. */
static void on_post(void *context, uint32_t rank, const void *value, uint32_t bytes)
{
    struct dpb_job_run *run = context;
    struct dpb_party *party = run->job->party;
    struct dpb_post post;
    if (bytes != sizeof post)
        return;
    memcpy(&post, value, sizeof post);
    if (party->parts[rank] != 0 && !dpb_board_apply(run->board, &post))
        return;
    if (post.confirm_at != UINT64_MAX) {
        run->confirm.at = post.confirm_at;
        run->confirm.value = post.confirm_value;
        run->confirm.n_missing = party->n_parts - 1;
        run->confirm.serial++;
        if (run->confirm.n_missing == 0)
            dpb_board_write(run->board, post.confirm_at, post.confirm_value);
    }
    for (uint32_t other = 1; post.all && other < party->n_parts; other++)
        if (other != party->parts[rank])
            dpb_channel_say(&party->channels[other], DPB_CHANNEL_CONTROL, run->confirm.serial,
                            &post, sizeof post);
}

static void on_confirm(struct dpb_job_run *run, const struct dpb_frame *frame)
{
    if (frame->peer != run->confirm.serial || run->confirm.n_missing == 0)
        return;
    if (--run->confirm.n_missing == 0)
        dpb_board_write(run->board, run->confirm.at, run->confirm.value);
}

/* ---- what parts tell ------------------------------------------------------------------------- */

/* A page as it stands at the rank's part; its first word is this launcher's. */
static void on_page(struct dpb_job_run *run, uint32_t rank, const uint8_t *value, size_t bytes)
{
    enum { KEPT = sizeof(uint32_t), SHORT = offsetof(struct dpb_status_page, status) };
    struct dpb_status_page *page = dpb_board_page(run->board, rank);
    struct dpb_process *process = &run->processes[rank];
    struct dpb_page_news news;
    if (bytes != sizeof news + SHORT && bytes != sizeof news + sizeof *page)
        return;
    memcpy(&news, value, sizeof news);
    memcpy((uint8_t *)page + KEPT, value + sizeof news + KEPT, bytes - sizeof news - KEPT);
    page->phase[sizeof page->phase - 1] = page->host[sizeof page->host - 1] = '\0';
    page->error[sizeof page->error - 1] = '\0';
    page->failed.phase[sizeof page->failed.phase - 1] = '\0';
    page->gpu[sizeof page->gpu - 1] = '\0';
    page->sharing.service[sizeof page->sharing.service - 1] = '\0';
    for (uint32_t i = 0; i < DPB_BOARD_WARNINGS; i++) {
        page->warnings[i].code[sizeof page->warnings[i].code - 1] = '\0';
        page->warnings[i].text[sizeof page->warnings[i].text - 1] = '\0';
    }
    for (uint32_t i = 0; i < DPB_BOARD_FACTS; i++) {
        page->facts[i].name[sizeof page->facts[i].name - 1] = '\0';
        page->facts[i].value[sizeof page->facts[i].value - 1] = '\0';
    }
    if (news.silent_ns >= 0)
        process->sign.sign_ns = dpb_ran_ns() - news.silent_ns;
    process->state = news.state;
}

static void on_journal(struct dpb_job_run *run, uint32_t rank, const uint8_t *value, size_t bytes)
{
    struct dpb_journal_piece piece;
    size_t capacity;
    uint8_t *journal = dpb_board_journal(run->board, rank, &capacity);
    if (bytes < sizeof piece)
        return;
    memcpy(&piece, value, sizeof piece);
    bytes -= sizeof piece;
    if (piece.offset <= capacity && bytes <= capacity - piece.offset)
        memcpy(journal + piece.offset, value + sizeof piece, bytes);
}

static void on_ended(struct dpb_job_run *run, uint32_t rank, const void *value, size_t bytes)
{
    struct dpb_process *process = &run->processes[rank];
    struct dpb_ended_news news;
    if (bytes != sizeof news || !process->running || process->last_words.at_ns != 0)
        return;
    memcpy(&news, value, sizeof news);
    process->wait_status = news.wait_status;
    process->ended_ns = news.ended_ns;
    process->last_words = dpb_deadline_in(LAST_WORDS_NS);
}

static void lose_part(struct dpb_job_run *run, uint32_t part, int64_t now_ns, const char *why);

/* Where ranks can start again, SIGTERM to another part is no interruption of the job: it ends that
 * part's machine, for others (part.c). */
static void on_interrupt(struct dpb_job_run *run, uint32_t part, const void *value, size_t bytes)
{
    int32_t number;
    if (bytes != sizeof number)
        return;
    memcpy(&number, value, sizeof number);
    if (number == SIGTERM && run->job->restarts > 0)
        lose_part(run, part, dpb_now_ns(), "was told to end (SIGTERM)");
    else
        dpb_job_interrupt(run, ++run->processes[part].n_interrupts, number);
}

/* The clock is read now: between two looks of the loop it may be earlier than the ping. */
static void on_ping(struct dpb_job_run *run, uint32_t part, const void *value, size_t bytes)
{
    struct dpb_ping ping;
    if (bytes != sizeof ping)
        return;
    memcpy(&ping, value, sizeof ping);
    ping.head_ns = dpb_now_ns();
    dpb_channel_say(&run->job->party->channels[part], DPB_CHANNEL_PONG, part, &ping, sizeof ping);
}

static void handle_of_rank(struct dpb_job_run *run, const struct dpb_frame *frame,
                           const void *value)
{
    const uint32_t rank = frame->peer;
    const size_t bytes = frame->value_bytes;
    switch (frame->op) {
    case DPB_CHANNEL_PAGE:
        on_page(run, rank, value, bytes);
        break;
    case DPB_CHANNEL_JOURNAL:
        on_journal(run, rank, value, bytes);
        break;
    case DPB_CHANNEL_ENDED:
        on_ended(run, rank, value, bytes);
        break;
    default: /* messages that only the head sends */
        break;
    }
}

static void handle(struct dpb_job_run *run, uint32_t part, const struct dpb_frame *frame,
                   const void *value)
{
    const struct dpb_party *party = run->job->party;
    switch (frame->op) {
    case DPB_CHANNEL_CONFIRM:
        on_confirm(run, frame);
        break;
    case DPB_CHANNEL_INTERRUPT:
        on_interrupt(run, part, value, frame->value_bytes);
        break;
    case DPB_CHANNEL_PING:
        on_ping(run, part, value, frame->value_bytes);
        break;
    default:
        if (frame->peer < party->n_ranks && party->parts[frame->peer] == part)
            handle_of_rank(run, frame, value);
    }
}

/* ---- parts that are gone --------------------------------------------------------------------- */

static void lose_rank(struct dpb_job_run *run, uint32_t rank, int64_t now_ns, const char *why)
{
    const struct dpb_party *party = run->job->party;
    struct dpb_process *process = &run->processes[rank];
    if (process->last_words.at_ns == 0 && process->fault_ns == 0 && !process->killed) {
        process->deserted = true;
        process->fault_ns = now_ns;
        snprintf(process->fault, sizeof process->fault, "its launcher (%s, pid %d) %s",
                 party->hosts[rank], (int)party->launcher_pids[party->parts[rank]], why);
    }
    process->ended_ns = process->last_words.at_ns != 0 ? process->ended_ns : now_ns;
    dpb_job_rank_ended(run, rank);
}

/* The part sends nothing more: its ranks are lost with it, whether they live or not. */
static void lose_part(struct dpb_job_run *run, uint32_t part, int64_t now_ns, const char *why)
{
    struct dpb_party *party = run->job->party;
    struct dpb_channel *channel = &party->channels[part];
    if (channel->fd >= 0)
        channel->lost_fd = channel->fd; /* not closed: a keeper would end with it */
    channel->fd = -1;
    dpb_channel_close(channel);
    for (uint32_t rank = 0; rank < run->n_ranks; rank++)
        if (party->parts[rank] == part && run->processes[rank].running)
            lose_rank(run, rank, now_ns, why);
}

/* After a rank has ended, the store has its last requests once the rank's connection has closed. */
static void settle_end(struct dpb_job_run *run, uint32_t rank)
{
    const struct dpb_process *process = &run->processes[rank];
    if (process->running && process->last_words.at_ns != 0 &&
        (dpb_store_server_closed(run->server, rank) || dpb_deadline_passed(process->last_words)))
        dpb_job_rank_ended(run, rank);
}

static void check_silence(struct dpb_job_run *run, uint32_t rank, int64_t now_ns)
{
    struct dpb_process *process = &run->processes[rank];
    char why[128];
    int64_t limit_ns = process->killed ? KILLED_NS : run->job->timeout_ns + DPB_PART_SILENCE_NS;
    const int64_t silent_ns = dpb_ran_ns() - process->heard_ns;
    if (!process->running || silent_ns < limit_ns)
        return;
    snprintf(why, sizeof why,
             "has not been heard of for %.1f s: it is stopped, or its machine or link is down",
             (double)silent_ns * 1e-9);
    process->stuck = true;
    const uint32_t part = run->job->party->parts[rank];
    if (dpb_tcp_tries(run->job->party->channels[part].fd) > 0)
        run->job->party->cut_off = true;
    lose_part(run, part, now_ns, why);
}

static void note_own_stop(struct dpb_job_run *run, int64_t now_ns)
{
    const int64_t stopped_ns = dpb_missed_ns() - run->missed_ns;
    if (stopped_ns == 0)
        return;
    run->missed_ns += stopped_ns;
    run->stopped_ns = stopped_ns;
    run->woke_ns = now_ns;
}

/* Part 1 has ended. If it gave this launcher up during a stop, it has said so (part.c), and
 * the others end as well. */
static bool was_given_up(struct dpb_job_run *run, int64_t now_ns)
{
    struct dpb_process *process = &run->processes[0];
    if (run->ending || run->stopped_ns < run->job->timeout_ns ||
        now_ns - run->woke_ns > DPB_PART_SILENCE_NS)
        return false;
    run->was_given_up = true;
    process->fault_ns = run->woke_ns - run->stopped_ns;
    snprintf(process->fault, sizeof process->fault,
             "its launcher was stopped for %.1f s, and the other parts of the job have ended "
             "meanwhile",
             (double)run->stopped_ns * 1e-9);
    dpb_job_end(run);
    dpb_job_kill(run, 0);
    return true;
}

/* After mpirun's end no process waits for the result, but it is made: measurements are kept. */
static void check_starter(struct dpb_job_run *run, int64_t now_ns)
{
    const struct dpb_party *party = run->job->party;
    struct dpb_process *process = &run->processes[0];
    if (run->ending || !dpb_party_deserted(party))
        return;
    process->fault_ns = now_ns;
    snprintf(process->fault, sizeof process->fault,
             "the process of %s that started it (pid %d) has ended", party->launcher,
             (int)party->starter);
    dpb_job_end(run);
}

static void note_heard(struct dpb_job_run *run, uint32_t part)
{
    const int64_t ran_ns = dpb_ran_ns();
    for (uint32_t rank = 0; rank < run->n_ranks; rank++)
        if (run->job->party->parts[rank] == part)
            run->processes[rank].heard_ns = ran_ns;
}

static void serve_part(struct dpb_job_run *run, uint32_t part, int64_t now_ns)
{
    struct dpb_channel *channel = &run->job->party->channels[part];
    struct dpb_frame frame;
    const void *value;
    char why[128];
    int found;
    if (channel->fd < 0)
        return;
    bool open = dpb_channel_receive(channel) && dpb_channel_flush(channel);
    while ((found = dpb_channel_next(channel, &frame, &value, why)) > 0) {
        note_heard(run, part);
        handle(run, part, &frame, value);
    }
    if (found < 0)
        lose_part(run, part, now_ns, why);
    else if (!open && (part != 1 || !was_given_up(run, now_ns)))
        lose_part(run, part, now_ns, "has ended: the connection to it is closed");
}

/* ---- in the launcher's loop ------------------------------------------------------------------ */

void dpb_head_begin(struct dpb_job_run *run)
{
    struct dpb_party *party = run->job->party;
    const int64_t ran_ns = dpb_ran_ns();
    run->missed_ns = dpb_missed_ns();
    dpb_store_server_on_post(run->server, on_post, run);
    for (uint32_t rank = 0; rank < party->n_ranks; rank++) {
        if (party->parts[rank] == 0)
            continue;
        dpb_store_server_attach(run->server, rank, party->store_fds[rank]);
        party->store_fds[rank] = -1;
        run->processes[rank].remote = run->processes[rank].running = true;
        run->processes[rank].heard_ns = ran_ns;
        run->n_running++;
    }
}

/* Until no more than `most` bytes wait for a part; a part that takes none for run.timeout_s, or has
 * ended, is lost. */
static dpb_status drain(struct dpb_job_run *run, size_t most)
{
    struct dpb_party *party = run->job->party;
    for (uint32_t part = 1; part < party->n_parts; part++) {
        struct dpb_channel *channel = &party->channels[part];
        struct dpb_deadline deadline = dpb_deadline_in(run->job->timeout_ns);
        for (size_t left = SIZE_MAX; left > most && dpb_channel_flush(channel);) {
            const size_t now_left = channel->out.end - channel->out.begin;
            if (now_left < left)
                deadline = dpb_deadline_in(run->job->timeout_ns);
            else if (dpb_deadline_passed(deadline))
                break;
            left = now_left;
            struct pollfd ready = {.fd = channel->fd, .events = POLLOUT};
            if (left > most)
                poll(&ready, 1, DRAIN_TICK_MS);
        }
        if (channel->fd < 0 || channel->out.end - channel->out.begin > most)
            return dpb_fail(DPB_PEER,
                            "the launcher of rank %u (%s) was to start its ranks again, and takes "
                            "nothing any more",
                            dpb_party_first(party, part),
                            party->hosts[dpb_party_first(party, part)]);
    }
    return DPB_OK;
}

/* A checkpoint of this launcher's, piece by piece, to all parts. */
static dpb_status send_checkpoint(struct dpb_job_run *run, int fd)
{
    uint8_t value[sizeof(struct dpb_journal_piece) + DPB_PART_PIECE_BYTES];
    struct dpb_journal_piece piece = {0};
    for (;;) {
        memcpy(value, &piece, sizeof piece);
        const ssize_t n =
            pread(fd, value + sizeof piece, DPB_PART_PIECE_BYTES, (off_t)piece.offset);
        if (n < 0)
            return dpb_fail(DPB_IO, "cannot read the checkpoint that is kept: %s", strerror(errno));
        if (n == 0)
            return DPB_OK;
        dpb_job_tell_parts(run, DPB_CHANNEL_KEPT, value, sizeof piece + (size_t)n);
        piece.offset += (uint64_t)n;
        DPB_TRY(drain(run, DRAIN_BYTES));
    }
}

/* While the head waits: the other parts hear from it, and signals come. */
static dpb_status meanwhile(void *context)
{
    struct dpb_job_run *run = context;
    const struct dpb_party *party = run->job->party;
    for (uint32_t part = 1; part < party->n_parts; part++)
        if (party->launcher_pids[part] != 0) /* not of one that is being readmitted */
            serve_part(run, part, dpb_now_ns());
    for (int number; (number = dpb_job_next_signal(run)) != 0;)
        if (dpb_signals_interrupts(&run->signals, number))
            dpb_job_interrupt(run, run->n_interrupts + 1, number);
    return run->interrupt != 0 ? DPB_INTERRUPTED : DPB_OK;
}

dpb_status dpb_head_await_launchers(struct dpb_job_run *run)
{
    struct dpb_party *party = run->job->party;
    dpb_status status = DPB_TIMEOUT;
    party->context = run;
    party->meanwhile = meanwhile;
    if (run->job->rejoin_ns > 0) {
        dpb_job_erase_progress(run);
        dpb_log(DPB_LOG_INFO, "waiting %.1f s (run.rejoin) for another launcher of the lost ranks",
                (double)run->job->rejoin_ns * 1e-9);
        status = dpb_party_readmit(party, run->job->rejoin_ns);
        if (status == DPB_TIMEOUT)
            dpb_log(DPB_LOG_INFO, "no other launcher has come");
    }
    party->meanwhile = NULL;
    return status;
}

/* While the parts connect their ranks anew. Frames stay unread: they may be of ranks that the head
 * does not know yet. */
static dpb_status check_whole(void *context)
{
    const struct dpb_job_run *run = context;
    const struct dpb_party *party = run->job->party;
    for (uint32_t part = 1; part < party->n_parts; part++) {
        struct pollfd ended = {.fd = party->channels[part].fd, .events = POLLRDHUP};
        const uint32_t rank = dpb_party_first(party, part);
        if (poll(&ended, 1, 0) != 0)
            return dpb_fail(DPB_PEER,
                            "the launcher of rank %u (%s) has ended while all ranks start again",
                            rank, party->hosts[rank]);
    }
    return DPB_OK;
}

dpb_status dpb_head_begin_again(struct dpb_job_run *run, const struct dpb_again *again)
{
    struct dpb_party *party = run->job->party;
    const size_t length = strlen(again->config);
    struct dpb_again_news news = {.checkpoint = again->checkpoint};
    uint8_t *said = calloc(1, sizeof news + length);
    dpb_status status = dpb_allocated(said);
    dpb_random_bytes(party->secret, DPB_SECRET_BYTES);
    memcpy(news.secret, party->secret, DPB_SECRET_BYTES);
    if (status == DPB_OK && again->checkpoint >= 0)
        status = send_checkpoint(run, run->job->kept.files[again->checkpoint]);
    if (status == DPB_OK) {
        memcpy(said, &news, sizeof news);
        memcpy(said + sizeof news, again->config, length);
        dpb_job_tell_parts(run, DPB_CHANNEL_AGAIN, said, sizeof news + length);
        status = drain(run, 0);
        explicit_bzero(said, sizeof news);
    }
    free(said);
    explicit_bzero(&news, sizeof news);
    party->context = run;
    party->meanwhile = check_whole;
    DPB_THEN(status, dpb_party_reconnect(party));
    party->meanwhile = NULL;
    if (status == DPB_OK)
        dpb_head_begin(run);
    return status;
}

void dpb_head_watch(const struct dpb_job_run *run, struct pollfd *fds)
{
    const struct dpb_party *party = run->job->party;
    for (uint32_t part = 0; part < party->n_parts; part++) {
        const struct dpb_channel *channel = &party->channels[part];
        bool waits = channel->out.end > channel->out.begin;
        fds[part] =
            (struct pollfd){.fd = channel->fd, .events = (short)(POLLIN | (waits ? POLLOUT : 0))};
    }
}

/* Pages grow as the square of the ranks: the more ranks, the rarer, but often within a deadline. */
static int64_t tell_interval_ns(const struct dpb_job_run *run)
{
    enum { RANKS = 64, OFTEN = 4 };
    const int64_t rarely_ns = TELL_NS * run->n_ranks / RANKS;
    const int64_t most_ns = run->job->timeout_ns / OFTEN;
    const int64_t interval_ns = rarely_ns < most_ns ? rarely_ns : most_ns;
    return interval_ns > TELL_NS ? interval_ns : TELL_NS;
}

/* The others show it in their messages, and see by it that ranks move on. All pages for a part go
 * out at once: with one call a page, hundreds of parts would take all of a core. */
static void tell_places(struct dpb_job_run *run)
{
    const struct dpb_party *party = run->job->party;
    for (uint32_t rank = 0; rank < run->n_ranks; rank++) {
        uint8_t value[sizeof(struct dpb_page_news) + offsetof(struct dpb_status_page, status)];
        const struct dpb_page_news news = {.silent_ns = -1};
        memcpy(value, &news, sizeof news);
        memcpy(value + sizeof news, dpb_board_page(run->board, rank), sizeof value - sizeof news);
        for (uint32_t to = 1; to < party->n_parts; to++)
            if (to != party->parts[rank])
                dpb_channel_add(&party->channels[to], DPB_CHANNEL_PAGE, rank, value, sizeof value);
    }
    for (uint32_t to = 1; to < party->n_parts; to++)
        dpb_channel_flush(&party->channels[to]);
}

void dpb_head_serve(struct dpb_job_run *run, const struct pollfd *fds, int64_t now_ns)
{
    note_own_stop(run, now_ns);
    check_starter(run, now_ns);
    const struct dpb_party *party = run->job->party;
    for (uint32_t part = 1; part < party->n_parts; part++)
        if (fds[part].revents != 0)
            serve_part(run, part, now_ns);
    for (uint32_t rank = 1; rank < run->n_ranks; rank++) {
        if (party->parts[rank] == 0)
            continue;
        settle_end(run, rank);
        check_silence(run, rank, now_ns);
    }
    if (now_ns - run->places_told_ns < tell_interval_ns(run))
        return;
    run->places_told_ns = now_ns;
    tell_places(run);
}
