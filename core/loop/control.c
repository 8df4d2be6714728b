/* control.c - see control.h. */
#include "loop/control.h"

#include <string.h>
#include <time.h>

#include "base/deadline.h"
#include "base/log.h"
#include "world/futex.h"
#include "world/store.h"
#include "world/world.h"

_Static_assert(sizeof(struct dpb_control_block) <= DPB_BOARD_CONTROL_BYTES, "fits the board");

void dpb_control_init(struct dpb_control *control, struct dpb_control_block *block, uint32_t rank,
                      uint32_t n_ranks)
{
    memset(control, 0, sizeof *control);
    control->block = block;
    control->rank = rank;
    control->n_ranks = n_ranks;
}

void dpb_control_relay(struct dpb_control *control, dpb_control_tell tell, void *context)
{
    control->tell = tell;
    control->context = context;
}

static dpb_status post_to_boards(void *context, const struct dpb_post *words)
{
    (void)context;
    return dpb_store_post(words, sizeof *words);
}

static uint64_t step_on_page(const struct dpb_control *control, uint32_t rank)
{
    return __atomic_load_n(&dpb_board_page(control->board, rank)->step, __ATOMIC_ACQUIRE);
}

void dpb_control_join(struct dpb_control *control, uint32_t n_workers, bool apart, uint32_t lead)
{
    dpb_control_init(control, dpb_board_control(dpb_world.board), dpb_world.rank, n_workers);
    control->apart = apart;
    if (lead > 0 && !apart && dpb_world.parted)
        control->lead = lead;
    else if (lead > 0 && !apart)
        control->step_of = step_on_page;
    control->board = dpb_world.board;
    if (dpb_world.parted)
        dpb_control_relay(control, post_to_boards, NULL);
}

static uint64_t offset_of(const struct dpb_control *control, const uint64_t *word)
{
    return (uint64_t)((const char *)word - (const char *)control->block);
}

/* A message that cannot be sent is the end of the job: the launcher has ended, and this rank with
 * it. */
static void tell(struct dpb_control *control, const struct dpb_post *post)
{
    if (control->tell)
        (void)control->tell(control->context, post);
}

/* On this board at once; on the others with the post. */
static void set(struct dpb_control *control, struct dpb_post *post, uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    post->words[post->n_words].offset = offset_of(control, word);
    post->words[post->n_words++].value = value;
}

static void set_for_all(struct dpb_control *control, uint64_t *word, uint64_t value)
{
    struct dpb_post post = {.all = true, .confirm_at = UINT64_MAX};
    set(control, &post, word, value);
    tell(control, &post);
}

void dpb_control_propose(struct dpb_control *control, uint32_t actions)
{
    control->wanted |= actions;
}

static void acknowledge(struct dpb_control *control, uint64_t sequence, uint64_t step)
{
    struct dpb_control_block *block = control->block;
    struct dpb_post post = {.confirm_at = UINT64_MAX};
    control->acked = sequence;
    control->acked_step = step;
    set(control, &post, &block->acks[control->rank].step, step);
    set(control, &post, &block->acks[control->rank].sequence, sequence);
    tell(control, &post);
}

static bool is_lost(const struct dpb_control *control, uint32_t rank)
{
    return control->board && dpb_board_lost(control->board, rank);
}

static bool has_left(const struct dpb_control *control, uint32_t rank)
{
    return __atomic_load_n(&control->block->acks[rank].left, __ATOMIC_ACQUIRE) != 0 ||
           is_lost(control, rank);
}

/* Rank 0: begins a round, if none is under way and something is wanted. */
static void begin_round(struct dpb_control *control)
{
    if (control->acked != 0 || control->proposed != 0 || control->wanted == 0)
        return;
    control->proposed = control->wanted;
    control->wanted = 0;
    uint64_t sequence = control->done + 1;
    struct dpb_post post = {.all = true,
                            .confirm_at = offset_of(control, &control->block->confirmed),
                            .confirm_value = sequence};
    set(control, &post, &control->block->proposal, sequence);
    tell(control, &post);
}

/* Rank 0: whether every board has the proposal under way. */
static bool is_confirmed(const struct dpb_control *control)
{
    return !control->tell || __atomic_load_n(&control->block->confirmed, __ATOMIC_ACQUIRE) ==
                                 __atomic_load_n(&control->block->proposal, __ATOMIC_RELAXED);
}

/* Rank 0: commits once every rank has acknowledged or left. A rank that did both counts: where
 * steps are exchanged the others are about to leave at the same step, and must not act there
 * without it. */
static void commit_if_all_acked(struct dpb_control *control)
{
    struct dpb_control_block *block = control->block;
    uint64_t highest = 0;
    for (uint32_t rank = 0; rank < control->n_ranks; rank++) {
        bool left = has_left(control, rank); /* looked at first: then all its words are there */
        if (__atomic_load_n(&block->acks[rank].sequence, __ATOMIC_ACQUIRE) != control->acked) {
            if (left)
                continue;
            return;
        }
        uint64_t step = __atomic_load_n(&block->acks[rank].step, __ATOMIC_RELAXED);
        highest = step > highest ? step : highest;
    }
    const uint64_t past = control->step_of ? 3 : 2 + 2 * control->lead;
    const uint64_t step = control->apart ? highest : highest + past;
    struct dpb_post post = {.all = true, .confirm_at = UINT64_MAX};
    set(control, &post, &block->commit_step, step);
    set(control, &post, &block->commit, control->acked << 32 | control->proposed);
    tell(control, &post);
    control->proposed = 0;
}

/* Takes the actions that this rank has acknowledged and rank 0 has committed. */
static void take_actions(struct dpb_control *control, uint64_t commit, uint32_t *actions)
{
    *actions = (uint32_t)commit;
    control->committed = __atomic_load_n(&control->block->commit_step, __ATOMIC_RELAXED);
    control->done = control->acked;
    control->acked = 0;
}

/* Whether this rank, having acknowledged, does not begin the step without the commit. */
static bool holds_at(const struct dpb_control *control, uint64_t step)
{
    bool is_needed = false;
    for (uint32_t rank = 0; control->step_of && rank < control->n_ranks; rank++) {
        const uint64_t at = control->step_of(control, rank); /* before it may acknowledge */
        const uint64_t *acked = &control->block->acks[rank].sequence;
        const bool looks = rank != 0 && __atomic_load_n(acked, __ATOMIC_ACQUIRE) == control->acked;
        if (rank != control->rank && !looks && at >= step && !has_left(control, rank))
            is_needed = true;
    }
    return !is_needed &&
           step >= control->acked_step + 2 + (control->rank == 0 ? 1 : 2) * control->lead;
}

bool dpb_control_try(struct dpb_control *control, uint64_t step, uint32_t *actions)
{
    struct dpb_control_block *block = control->block;
    *actions = 0;
    if (control->rank == 0)
        begin_round(control);
    if (control->rank == 0 && !control->apart && !is_confirmed(control))
        return false;
    if (control->acked == 0) {
        uint64_t proposal = __atomic_load_n(&block->proposal, __ATOMIC_ACQUIRE);
        if (proposal == control->done)
            return true;
        acknowledge(control, proposal, step);
    }
    if (control->rank == 0 && control->proposed != 0)
        commit_if_all_acked(control);

    /* Pages first: that of rank 0 may be past a step which it has committed meanwhile. */
    const bool holds = !control->apart && holds_at(control, step);
    const uint64_t commit = __atomic_load_n(&block->commit, __ATOMIC_ACQUIRE);
    if (commit >> 32 != control->acked)
        return !holds;
    if (control->apart || step >= __atomic_load_n(&block->commit_step, __ATOMIC_RELAXED))
        take_actions(control, commit, actions);
    return true;
}

void dpb_control_arrive(struct dpb_control *control, uint64_t step)
{
    set_for_all(control, &control->block->acks[control->rank].pause, step);
}

bool dpb_control_may_pause(struct dpb_control *control, uint64_t step)
{
    struct dpb_control_block *block = control->block;
    if (control->rank != 0)
        return __atomic_load_n(&block->granted, __ATOMIC_ACQUIRE) >= step;
    for (uint32_t rank = 0; rank < control->n_ranks; rank++)
        if (__atomic_load_n(&block->acks[rank].pause, __ATOMIC_ACQUIRE) != step &&
            !is_lost(control, rank))
            return false;
    set_for_all(control, &block->granted, step);
    return true;
}

void dpb_control_leave(struct dpb_control *control)
{
    set_for_all(control, &control->block->acks[control->rank].left, 1);
}

bool dpb_control_all_left(struct dpb_control *control)
{
    while (control->n_left < control->n_ranks && has_left(control, control->n_left))
        control->n_left++;
    const bool all = control->n_left == control->n_ranks;
    if (all || control->rank != 0)
        return all;
    begin_round(control);
    if (control->proposed != 0) {
        control->acked = __atomic_load_n(&control->block->proposal, __ATOMIC_RELAXED);
        commit_if_all_acked(control);
    }
    if (control->acked != 0 && control->proposed == 0) { /* committed: no act of its own follows */
        control->done = control->acked;
        control->acked = 0;
    }
    return false;
}

uint32_t dpb_control_nap_us(const struct dpb_control *control)
{
    enum { SERVES_US = 200 /* rank 0 commits for the others */, A_RANK_US = 100 };
    return control->rank == 0 ? SERVES_US : SERVES_US + A_RANK_US * control->n_ranks;
}

/* A nap in a wait for the other workers. Fails when the job ends, and at the deadline. */
static dpb_status rest(struct dpb_deadline deadline, long nap_ns, uint64_t step,
                       const char *purpose)
{
    const struct timespec nap = {.tv_nsec = nap_ns};
    nanosleep(&nap, NULL);
    if (dpb_board_job_ended(dpb_world.board))
        return dpb_wait_cancelled(&(struct dpb_wait){.purpose = purpose});
    return dpb_deadline_passed(deadline)
               ? dpb_fail(
                     DPB_TIMEOUT,
                     "step %llu: the other workers did not take part in %s within %.0f s; give "
                     "run.timeout_s more if they are only slow",
                     (unsigned long long)step, purpose, (double)dpb_world.timeout_ns * 1e-9)
               : DPB_OK;
}

dpb_status dpb_control_look(struct dpb_control *control, uint64_t step, uint32_t *actions)
{
    if (dpb_control_try(control, step, actions))
        return DPB_OK;
    dpb_world_note("control", UINT64_MAX, UINT32_MAX);
    const struct dpb_deadline deadline = dpb_deadline_in(dpb_world.timeout_ns);
    while (!dpb_control_try(control, step, actions)) {
        if (control->meanwhile)
            DPB_TRY(control->meanwhile(control->owner));
        DPB_TRY(rest(deadline, 50000, step, "a change of phase"));
    }
    return DPB_OK;
}

/* ---- agreements ---------------------------------------------------------------------------- */

void dpb_control_say(struct dpb_control *control, uint8_t value)
{
    const uint64_t number = ++control->agreements;
    set_for_all(control, &control->block->said[number % 2][control->rank], number << 8 | value);
}

bool dpb_control_hear(const struct dpb_control *control, uint8_t *highest)
{
    const uint64_t number = control->agreements;
    *highest = 0;
    for (uint32_t rank = 0; rank < control->n_ranks; rank++) {
        const bool lost = is_lost(control, rank); /* looked at first, as in commit_if_all_acked */
        uint64_t word = __atomic_load_n(&control->block->said[number % 2][rank], __ATOMIC_ACQUIRE);
        if (word >> 8 != number && !lost)
            return false;
        if (word >> 8 != number)
            continue;
        *highest = (uint8_t)word > *highest ? (uint8_t)word : *highest;
    }
    return true;
}

dpb_status dpb_control_agree(struct dpb_control *control, uint64_t step, uint8_t value,
                             uint8_t *highest)
{
    enum { LOOKS = 1000 /* before it sleeps in between */ };
    const struct dpb_deadline deadline = dpb_deadline_in(dpb_world.timeout_ns);
    dpb_control_say(control, value);
    for (uint64_t looks = 1; !dpb_control_hear(control, highest); looks++) {
        if (dpb_world.may_spin && looks % LOOKS != 0)
            continue;
        DPB_TRY(rest(deadline, 20000, step, "an agreement"));
    }
    return DPB_OK;
}
