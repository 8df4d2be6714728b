/*
 * test_control.c - the control word: ranks that look at it in any order and at any speed do the
 * same things at the same steps.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "dpbench/random.h"
#include "lib/test.h"
#include "loop/control.h"
#include "world/world.h"

enum { MAX_RANKS = 6, SEEDS = 1000, THREAD_SEEDS = 200, MAX_TAKEN = 64, PATIENCE = 2000000 };

/* ---- a made-up job ------------------------------------------------------------------------- */

struct taken {
    uint64_t step;
    uint32_t actions;
};

struct rank {
    struct dpb_control control;
    uint64_t step;   /* the next to begin: so many were begun */
    uint32_t weight; /* its speed */
    bool ended;      /* begins no further step */
    struct taken taken[MAX_TAKEN];
    size_t n_taken;
};

/* What is on its way between the boards of two parts, in order. */
struct channel {
    struct message {
        struct dpb_post post;
        bool confirms; /* and nothing else */
    } queue[4096];
    size_t begin, end;
};

struct job {
    struct dpb_control_block block;                /* rank 0's, or the one of all */
    struct dpb_control_block apart[MAX_RANKS];     /* of the others, where each has one */
    struct channel up[MAX_RANKS], down[MAX_RANKS]; /* to and from rank 0's launcher */
    struct dpb_post asked;                         /* the post that all are to confirm */
    uint32_t n_missing;
    bool is_apart;
    struct rank ranks[MAX_RANKS];
    uint32_t n_ranks, seed;
    bool together;   /* a step is exchanged: nobody begins a step before all have begun the last */
    uint32_t late;   /* ... or, with 1, the one before the last: comm.late */
    uint64_t period; /* ... or in each period-th alone nobody ends it before all have begun it */
    uint64_t length; /* steps of the run; UINT64_MAX: until it is stopped */
    uint64_t pages[MAX_RANKS]; /* the steps that ranks look before or are in */
    uint32_t drawn;            /* random numbers so far */
    uint32_t planned;          /* proposals to come, the stop last */
    uint32_t all_proposed;
};

static struct job *current;

static uint64_t step_of(const struct dpb_control *control, uint32_t rank)
{
    (void)control;
    return __atomic_load_n(&current->pages[rank], __ATOMIC_ACQUIRE);
}

static bool look_at(struct job *job, struct rank *rank, uint32_t *actions)
{
    __atomic_store_n(&job->pages[rank->control.rank], rank->step, __ATOMIC_RELEASE);
    return dpb_control_try(&rank->control, rank->step, actions);
}

static uint32_t draw(struct job *job, uint32_t below)
{
    return dpb_random(job->seed, DPB_STREAM_SHUFFLE, job->drawn++, 7, 0, 0).v[0] % below;
}

static dpb_status tell(void *context, const struct dpb_post *post)
{
    struct channel *channel = context;
    assert_true(channel->end < sizeof channel->queue / sizeof *channel->queue);
    channel->queue[channel->end++] = (struct message){.post = *post};
    return DPB_OK;
}

static void apply(struct dpb_control_block *block, const struct dpb_post *post)
{
    for (uint32_t i = 0; i < post->n_words; i++)
        memcpy((char *)block + post->words[i].offset, &post->words[i].value, sizeof(uint64_t));
}

static void all_have_it(struct job *job)
{
    memcpy((char *)&job->block + job->asked.confirm_at, &job->asked.confirm_value,
           sizeof(uint64_t));
}

/* The launcher of rank 0 hears the next of a rank's: as core/launch/head.c does. */
static void deliver_up(struct job *job, uint32_t from)
{
    const struct message *message = &job->up[from].queue[job->up[from].begin++];
    if (message->confirms) {
        if (--job->n_missing == 0)
            all_have_it(job);
        return;
    }
    if (from != 0)
        apply(&job->block, &message->post);
    if (message->post.confirm_at != UINT64_MAX) {
        job->asked = message->post;
        job->n_missing = job->n_ranks - 1;
        if (job->n_missing == 0)
            all_have_it(job);
    }
    for (uint32_t to = 1; message->post.all && to < job->n_ranks; to++)
        if (to != from)
            tell(&job->down[to], &message->post);
}

static void deliver_down(struct job *job, uint32_t to)
{
    const struct message *message = &job->down[to].queue[job->down[to].begin++];
    apply(&job->apart[to], &message->post);
    if (message->post.confirm_at != UINT64_MAX) {
        tell(&job->up[to], &message->post);
        job->up[to].queue[job->up[to].end - 1].confirms = true;
    }
}

/* Something on its way arrives; false: nothing is. */
static bool deliver(struct job *job)
{
    uint32_t first = draw(job, 2 * MAX_RANKS);
    for (uint32_t i = 0; i < 2 * MAX_RANKS; i++) {
        uint32_t which = (first + i) % (2 * MAX_RANKS), rank = which / 2;
        struct channel *channel = which % 2 ? &job->up[rank] : &job->down[rank];
        if (channel->begin == channel->end)
            continue;
        which % 2 ? deliver_up(job, rank) : deliver_down(job, rank);
        return true;
    }
    return false;
}

static void job_make(struct job *job, uint32_t seed)
{
    memset(job, 0, sizeof *job);
    current = job;
    job->seed = seed;
    job->n_ranks = 1 + draw(job, MAX_RANKS);
    job->together = draw(job, 2);
    job->late = draw(job, 2);
    job->period = job->late || draw(job, 2) ? 1 : 1 + draw(job, 8);
    job->length = draw(job, 2) ? 1 + draw(job, 60) : UINT64_MAX;
    job->planned = 1 + draw(job, 5);
    for (uint32_t r = 0; r < job->n_ranks; r++) {
        dpb_control_init(&job->ranks[r].control, &job->block, r, job->n_ranks);
        job->ranks[r].control.step_of = job->period > 1 ? step_of : NULL;
        job->ranks[r].weight = draw(job, 3) == 0 ? 1 : 1 + draw(job, 12);
    }
}

/* Rank 0 now and then wants something; at last, that all stop. */
static void maybe_propose(struct job *job)
{
    static const uint32_t some[] = {DPB_ACTION_TIMED, DPB_ACTION_TIMED | DPB_ACTION_UNSTEADY,
                                    DPB_ACTION_UNSTEADY};
    if (job->planned == 0 || draw(job, 4) != 0)
        return;
    uint32_t actions = some[draw(job, 3)];
    if (--job->planned == 0)
        actions = DPB_ACTION_STOP | (draw(job, 2) ? DPB_ACTION_INTERRUPTED : 0);
    job->all_proposed |= actions;
    dpb_control_propose(&job->ranks[0].control, actions);
}

/* What a rank does after a look that let it go on: what dpb_train does. */
static void act(struct job *job, struct rank *rank, uint32_t actions)
{
    if (actions != 0) {
        assert_true(rank->n_taken < MAX_TAKEN);
        rank->taken[rank->n_taken++] = (struct taken){rank->step, actions};
    }
    if (rank->step >= job->length || (actions & DPB_ACTION_STOP)) {
        rank->ended = true;
        dpb_control_leave(&rank->control);
    } else {
        rank->step++;
    }
}

/* Ranks have taken the same; and all that was proposed, unless the run was over before. */
static void check_taken(const struct job *job)
{
    const struct rank *most = &job->ranks[0];
    for (uint32_t r = 1; r < job->n_ranks; r++)
        if (job->ranks[r].n_taken > most->n_taken)
            most = &job->ranks[r];
    for (uint32_t r = 0; r < job->n_ranks; r++) {
        const struct rank *rank = &job->ranks[r];
        for (size_t i = 0; i < rank->n_taken; i++)
            if (rank->taken[i].step != most->taken[i].step ||
                rank->taken[i].actions != most->taken[i].actions)
                fail_msg("seed %u: rank %u did other things than its peers", job->seed, r);
        /* Only a rank that had done the whole run may miss what its peers did, and only where they
         * can be apart. */
        bool done = rank->step == job->length;
        if (rank->n_taken < most->n_taken && (job->together || !done))
            fail_msg("seed %u: rank %u, at step %llu, missed the action of step %llu", job->seed, r,
                     (unsigned long long)rank->step,
                     (unsigned long long)most->taken[rank->n_taken].step);
    }
    uint32_t all = 0;
    for (size_t i = 0; i < most->n_taken; i++)
        all |= most->taken[i].actions;
    assert_int_equal(all & ~job->all_proposed, 0);
    if (job->length == UINT64_MAX)
        assert_int_equal(all, job->all_proposed);
}

/* ---- interleavings ------------------------------------------------------------------------- */

/* Nobody has begun the step that a commit is for; and it is not far, whatever the period. */
static void check_commit(const struct job *job, uint64_t commit_before)
{
    uint64_t most = 0;
    if (job->block.commit == commit_before)
        return;
    for (uint32_t r = 0; r < job->n_ranks; r++) {
        most = job->ranks[r].step > most ? job->ranks[r].step : most;
        if (!job->ranks[r].ended && job->ranks[r].step > job->block.commit_step)
            fail_msg("seed %u: step %llu is committed, rank %u has begun it", job->seed,
                     (unsigned long long)job->block.commit_step, r);
    }
    assert_true(job->is_apart || job->block.commit_step <= most + 3);
}

static bool may_look(const struct job *job, const struct rank *rank)
{
    const uint64_t met = rank->step - rank->step % job->period;
    for (uint32_t r = 0; job->together && r < job->n_ranks; r++)
        if (__atomic_load_n(&job->ranks[r].step, __ATOMIC_ACQUIRE) + job->late < met)
            return false; /* still in the exchange of the step before */
    return true;
}

static struct rank *choose(struct job *job)
{
    uint32_t sum = 0;
    for (uint32_t r = 0; r < job->n_ranks; r++)
        sum += job->ranks[r].weight;
    uint32_t at = draw(job, sum), r = 0;
    for (; at >= job->ranks[r].weight; r++)
        at -= job->ranks[r].weight;
    return &job->ranks[r];
}

/* One move of one rank; true once all have left. */
static bool move(struct job *job)
{
    struct rank *rank = choose(job);
    uint64_t commit = job->block.commit;
    uint32_t actions = 0;
    bool all_left = false, may_begin_step = false;
    if (rank == &job->ranks[0])
        maybe_propose(job);
    if (rank->ended)
        all_left = dpb_control_all_left(&rank->control);
    else if (may_look(job, rank))
        may_begin_step = look_at(job, rank, &actions);
    check_commit(job, commit);
    if (may_begin_step)
        act(job, rank, actions);
    return all_left;
}

/* Each rank gets a board of its own; what is written there arrives elsewhere after `delay` moves or
 * so. */
static void set_apart(struct job *job)
{
    job->is_apart = true;
    for (uint32_t r = 0; r < job->n_ranks; r++) {
        dpb_control_init(&job->ranks[r].control, r == 0 ? &job->block : &job->apart[r], r,
                         job->n_ranks);
        job->ranks[r].control.lead = job->period - 1;
        dpb_control_relay(&job->ranks[r].control, tell, &job->up[r]);
    }
}

static void run_moves(struct job *job, uint32_t delay)
{
    for (uint32_t moves = 0; !move(job);) {
        if (++moves == PATIENCE)
            fail_msg("seed %u, delay %u: deadlock", job->seed, delay);
        if (job->is_apart && draw(job, delay) == 0)
            deliver(job);
    }
    while (job->is_apart && deliver(job))
        ;
}

static void interleave(uint32_t delay)
{
    uint64_t n_taken = 0, n_unequal = 0;
    static struct job job;
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        job_make(&job, seed);
        if (delay > 0)
            set_apart(&job);
        run_moves(&job, delay);
        for (uint32_t r = 0; r < job.n_ranks; r++) {
            assert_true(job.ranks[r].ended);
            assert_true(dpb_control_all_left(&job.ranks[r].control));
            n_unequal += job.ranks[r].n_taken != job.ranks[0].n_taken;
            n_taken += job.ranks[r].n_taken;
        }
        check_taken(&job);
    }
    /* The jobs were worth it: things happened, and ranks ended apart. */
    assert_true(n_taken > 2 * SEEDS);
    assert_true(n_unequal > 0);
}

TEST(test_interleavings)
{
    interleave(0);
}

/* Words that are told to other boards, and seen there at any time later. */
TEST(test_delays)
{
    interleave(1);
    interleave(4);
    interleave(40);
}

/* ---- apart: pauses are entered by all, whoever stops --------------------------------------- */

/* Where a rank is: it trains, waits for the grant of the pause at its step, or is in that pause. */
enum place { TRAINS, WAITS, PAUSES };

enum { EVERY = 7 /* steps from pause to pause */ };

static bool all_are_at(const struct job *job, const enum place *places, uint64_t step)
{
    for (uint32_t r = 0; r < job->n_ranks; r++)
        if (!(places[r] == PAUSES && job->ranks[r].step == step) && job->ranks[r].step <= step)
            return false;
    return true;
}

/* One move of a rank that may be any number of steps ahead. */
static void move_far(struct job *job, enum place *places, uint64_t *stopped_at)
{
    struct rank *rank = choose(job);
    enum place *place = &places[rank - job->ranks];
    uint32_t actions = 0;
    if (rank == &job->ranks[0] && *place != PAUSES)
        maybe_propose(job);
    if (rank->ended) {
        dpb_control_all_left(&rank->control);
        return;
    }
    if (*place == PAUSES) { /* a collective: over when all have come */
        if (!all_are_at(job, places, rank->step))
            return;
        *place = TRAINS;
        rank->step++;
        return;
    }
    assert_true(dpb_control_try(&rank->control, rank->step, &actions)); /* nobody holds */
    if (actions != 0)
        rank->taken[rank->n_taken++] = (struct taken){rank->step, actions};
    if (actions & DPB_ACTION_STOP) {
        rank->ended = true;
        dpb_control_leave(&rank->control);
        *stopped_at = rank->step > *stopped_at ? rank->step : *stopped_at;
        for (uint32_t r = 0; r < job->n_ranks; r++)
            if (places[r] == PAUSES && job->ranks[r].step >= rank->step)
                fail_msg("seed %u: rank %u stops while rank %u is in a pause", job->seed,
                         rank->control.rank, r);
    } else if (*place == WAITS) {
        if (dpb_control_may_pause(&rank->control, rank->step))
            *place = PAUSES;
    } else if (rank->step > 0 && rank->step % EVERY == 0) {
        dpb_control_arrive(&rank->control, rank->step);
        *place = WAITS;
    } else {
        rank->step++;
    }
}

static bool all_have_ended(const struct job *job)
{
    for (uint32_t r = 0; r < job->n_ranks; r++)
        if (!job->ranks[r].ended)
            return false;
    return true;
}

static void run_far(struct job *job, uint32_t delay)
{
    enum place places[MAX_RANKS] = {TRAINS};
    uint64_t stopped_at = 0, least = UINT64_MAX;
    for (uint32_t moves = 0; !all_have_ended(job); moves++) {
        if (moves == PATIENCE)
            fail_msg("seed %u, delay %u: deadlock", job->seed, delay);
        move_far(job, places, &stopped_at);
        if (job->is_apart && draw(job, delay) == 0)
            deliver(job);
    }
    for (uint32_t r = 0; r < job->n_ranks; r++) {
        least = job->ranks[r].step < least ? job->ranks[r].step : least;
        assert_int_equal(job->ranks[r].n_taken, job->ranks[0].n_taken);
        for (size_t i = 0; i < job->ranks[r].n_taken; i++)
            assert_int_equal(job->ranks[r].taken[i].actions, job->ranks[0].taken[i].actions);
    }
    assert_true(stopped_at / EVERY <= least / EVERY + 1); /* by a pause at the most */
}

TEST(test_far_apart)
{
    static struct job job;
    for (uint32_t seed = 0; seed < SEEDS; seed++)
        for (uint32_t delay = 0; delay <= 4; delay += 2) {
            job_make(&job, seed);
            job.length = UINT64_MAX;
            job.together = false;
            if (delay > 0)
                set_apart(&job);
            for (uint32_t r = 0; r < job.n_ranks; r++)
                job.ranks[r].control.apart = true;
            run_far(&job, delay);
        }
}

/* Every rank hears the highest of what all have said, though words arrive late and ranks run
 * ahead. */
static void agree(struct job *job, uint32_t rounds)
{
    uint8_t highest[MAX_RANKS], all[32] = {0}, own[32][MAX_RANKS];
    uint32_t round[MAX_RANKS] = {0}, n_done = 0;
    bool said[MAX_RANKS] = {false};
    for (uint32_t k = 0; k < rounds; k++)
        for (uint32_t r = 0; r < job->n_ranks; r++) {
            own[k][r] = draw(job, 3) == 0 ? (uint8_t)draw(job, 256) : 0;
            all[k] = own[k][r] > all[k] ? own[k][r] : all[k];
        }
    for (uint32_t moves = 0; n_done < job->n_ranks; moves++) {
        uint32_t r = draw(job, job->n_ranks);
        assert_true(moves < PATIENCE);
        deliver(job);
        if (round[r] == rounds)
            continue;
        if (!said[r])
            dpb_control_say(&job->ranks[r].control, own[round[r]][r]);
        said[r] = true;
        if (!dpb_control_hear(&job->ranks[r].control, &highest[r]))
            continue;
        assert_int_equal(highest[r], all[round[r]]);
        said[r] = false;
        n_done += ++round[r] == rounds;
    }
}

TEST(test_agreements)
{
    static struct job job;
    for (uint32_t seed = 0; seed < 200; seed++) {
        job_make(&job, seed);
        if (seed % 2)
            set_apart(&job);
        agree(&job, 20);
    }
}

/* ---- the same with real concurrency -------------------------------------------------------- */

struct thread_argument {
    struct job *job;
    struct rank *rank;
    uint32_t seed;
};

static void pause_at_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    if (*seed >> 28 == 0)
        usleep(*seed >> 22 & 127);
    else if (*seed >> 31)
        sched_yield();
}

static void *run_rank(void *argument)
{
    struct thread_argument *a = argument;
    struct rank *rank = a->rank;
    uint32_t actions;
    for (uint64_t moves = 0; !rank->ended && moves < PATIENCE; moves++) {
        pause_at_random(&a->seed);
        if (rank->control.rank == 0)
            maybe_propose(a->job);
        if (!may_look(a->job, rank) || !look_at(a->job, rank, &actions))
            continue;
        uint64_t step = rank->step;
        if (actions != 0)
            rank->taken[rank->n_taken++] = (struct taken){step, actions};
        rank->ended = step >= a->job->length || (actions & DPB_ACTION_STOP);
        if (rank->ended)
            dpb_control_leave(&rank->control);
        else
            __atomic_store_n(&rank->step, step + 1, __ATOMIC_RELEASE);
    }
    for (uint64_t moves = 0; moves < PATIENCE && !dpb_control_all_left(&rank->control); moves++)
        pause_at_random(&a->seed);
    return NULL;
}

TEST(test_threads)
{
    static struct job job;
    for (uint32_t seed = 0; seed < THREAD_SEEDS; seed++) {
        pthread_t threads[MAX_RANKS];
        struct thread_argument arguments[MAX_RANKS];
        job_make(&job, 5000 + seed);
        for (uint32_t r = 0; r < job.n_ranks; r++) {
            arguments[r] = (struct thread_argument){&job, &job.ranks[r], seed * 64 + r};
            assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &arguments[r]), 0);
        }
        for (uint32_t r = 0; r < job.n_ranks; r++)
            pthread_join(threads[r], NULL);
        for (uint32_t r = 0; r < job.n_ranks; r++)
            if (!job.ranks[r].ended)
                fail_msg("seed %u: rank %u did not come to its end", seed, r);
        check_taken(&job);
    }
}

/* ---- by hand ------------------------------------------------------------------------------- */

static struct dpb_control_block block;
static struct dpb_control pair[2];

static int make_pair(void **state)
{
    (void)state;
    memset(&block, 0, sizeof block);
    for (uint32_t r = 0; r < 2; r++)
        dpb_control_init(&pair[r], &block, r, 2);
    return 0;
}

/* The look of a rank: -1: has to wait; else the actions. */
static int look(uint32_t rank, uint64_t step)
{
    uint32_t actions;
    return dpb_control_try(&pair[rank], step, &actions) ? (int)actions : -1;
}

/* Rank 1 is at step 7 when rank 0 proposes at 3: both act at 9; what was proposed meanwhile,
 * later. */
TEST_WITH(test_two_past_the_highest, make_pair, NULL)
{
    assert_int_equal(look(0, 2), 0);
    assert_int_equal(look(1, 6), 0);
    dpb_control_propose(&pair[0], DPB_ACTION_TIMED);
    assert_int_equal(look(0, 3), 0);
    assert_int_equal(look(0, 4), 0);
    assert_int_equal(look(0, 5), -1); /* two past its own acknowledgement, and no commit */
    dpb_control_propose(&pair[0], DPB_ACTION_STOP);
    assert_int_equal(look(1, 7), 0);
    assert_int_equal(look(0, 5), 0); /* commits for 9 */
    assert_int_equal(look(1, 8), 0);
    assert_int_equal(look(1, 9), DPB_ACTION_TIMED);
    for (uint64_t step = 6; step < 9; step++)
        assert_int_equal(look(0, step), 0);
    assert_int_equal(look(0, 9), DPB_ACTION_TIMED);
    assert_int_equal(look(0, 10), 0); /* the stop is proposed */
    assert_int_equal(look(1, 10), 0);
    assert_int_equal(look(0, 11), 0); /* and committed for 12 */
    assert_int_equal(look(1, 11), 0);
    assert_int_equal(look(1, 12), DPB_ACTION_STOP);
    assert_int_equal(look(0, 12), DPB_ACTION_STOP);
}

static uint64_t pages[2];
static bool rank_0_runs;

/* With rank_0_runs, rank 0 commits and goes on past the step just before its page is read. */
static uint64_t page_of(const struct dpb_control *control, uint32_t rank)
{
    if (rank_0_runs && control == &pair[1] && rank == 0) {
        rank_0_runs = false;
        assert_int_equal(look(0, 4), 0);
        assert_int_equal(look(0, 5), DPB_ACTION_TIMED);
        pages[0] = 6;
    }
    return pages[rank];
}

/* Rank 1 may begin what rank 0's page is past: unless that page is past the committed step. */
TEST_WITH(test_committed_within_a_look, make_pair, NULL)
{
    pair[0].step_of = pair[1].step_of = page_of;
    memset(pages, 0, sizeof pages);
    assert_int_equal(look(0, 1), 0);
    dpb_control_propose(&pair[0], DPB_ACTION_TIMED);
    assert_int_equal(look(0, 2), 0);
    assert_int_equal(look(0, 3), 0);
    pages[0] = 4;
    assert_int_equal(look(0, 4), -1);
    for (uint64_t step = 0; step < 5; step++) {
        pages[1] = step;
        assert_int_equal(look(1, step), 0);
    }
    pages[1] = 5;
    rank_0_runs = true; /* commits for 5, three past its own acknowledgement */
    assert_int_equal(look(1, 5), DPB_ACTION_TIMED);
}

/* A rank that has done its steps is not waited for, whichever of the two it is. */
TEST_WITH(test_one_has_left, make_pair, NULL)
{
    assert_int_equal(look(1, 0), 0);
    dpb_control_leave(&pair[1]);
    assert_false(dpb_control_all_left(&pair[1]));
    dpb_control_propose(&pair[0], DPB_ACTION_STOP);
    assert_int_equal(look(0, 1), 0);
    assert_int_equal(look(0, 2), 0);
    assert_int_equal(look(0, 3), DPB_ACTION_STOP);

    make_pair(NULL);
    dpb_control_propose(&pair[0], DPB_ACTION_TIMED);
    assert_int_equal(look(0, 9), 0);
    dpb_control_leave(&pair[0]); /* with a round under way */
    assert_int_equal(look(1, 3), 0);
    assert_int_equal(look(1, 4), 0);
    assert_int_equal(look(1, 5), -1);
    assert_false(dpb_control_all_left(&pair[0])); /* commits */
    for (uint64_t step = 5; step < 11; step++)
        assert_int_equal(look(1, step), 0);
    assert_int_equal(look(1, 11), DPB_ACTION_TIMED); /* rank 0 had acknowledged at 9 */
    dpb_control_propose(&pair[0], DPB_ACTION_STOP);  /* and another */
    assert_false(dpb_control_all_left(&pair[0]));
    assert_int_equal(look(1, 12), 0);
    assert_false(dpb_control_all_left(&pair[0]));
    assert_int_equal(look(1, 13), 0);
    assert_int_equal(look(1, 14), DPB_ACTION_STOP); /* rank 0 had left before */
    dpb_control_leave(&pair[1]);
    assert_true(dpb_control_all_left(&pair[0]) && dpb_control_all_left(&pair[1]));
}

/* Rank 1 dies without another word: rank 0 waits for none of it, at any time. */
TEST_WITH(test_one_is_lost, make_pair, NULL)
{
    struct dpb_board *board;
    uint8_t highest;
    assert_int_equal(dpb_board_create(2, 0, &board), DPB_OK);
    pair[0].board = pair[1].board = board;
    pair[0].apart = pair[1].apart = true;
    dpb_control_propose(&pair[0], DPB_ACTION_TIMED);
    assert_int_equal(look(0, 1), 0);
    assert_int_equal(look(0, 2), 0);
    dpb_control_arrive(&pair[0], 5);
    assert_false(dpb_control_may_pause(&pair[0], 5));
    dpb_control_say(&pair[0], 3);
    assert_false(dpb_control_hear(&pair[0], &highest));
    dpb_control_leave(&pair[0]);
    assert_false(dpb_control_all_left(&pair[0]));

    dpb_board_lose(board, 1);
    assert_int_equal(look(0, 3), DPB_ACTION_TIMED);
    assert_true(dpb_control_may_pause(&pair[0], 5));
    assert_true(dpb_control_hear(&pair[0], &highest) && highest == 3);
    assert_true(dpb_control_all_left(&pair[0]));
    dpb_board_destroy(board);
}

/* A run of five steps in which gradients are exchanged: rank 1 has acknowledged and left at its
 * end, so rank 0 must not act at its own end, where rank 1 did not. */
TEST_WITH(test_last_steps, make_pair, NULL)
{
    dpb_control_propose(&pair[0], DPB_ACTION_STOP | DPB_ACTION_INTERRUPTED);
    assert_int_equal(look(1, 3), 0);
    assert_int_equal(look(0, 3), 0);
    assert_int_equal(look(1, 4), 0);
    assert_int_equal(look(1, 5), 0);
    dpb_control_leave(&pair[1]);
    assert_int_equal(look(0, 4), 0);
    assert_int_equal(look(0, 5), 0);
}

/* The last of as many ranks as a job may have: its words lie in the block, and are found there. */
TEST(test_most_ranks)
{
    static struct {
        struct dpb_control_block block;
        uint64_t behind[8];
    } memory;
    static struct dpb_control ranks[DPB_JOB_RANKS];
    static const uint64_t untouched[8];
    uint8_t highest;
    uint32_t actions;
    for (uint32_t r = 0; r < DPB_JOB_RANKS; r++) {
        dpb_control_init(&ranks[r], &memory.block, r, DPB_JOB_RANKS);
        dpb_control_say(&ranks[r], r + 1 == DPB_JOB_RANKS ? 7 : 1);
        dpb_control_say(&ranks[r], r + 1 == DPB_JOB_RANKS ? 5 : 1);
    }
    assert_true(dpb_control_hear(&ranks[0], &highest));
    assert_int_equal(highest, 5);
    dpb_control_propose(&ranks[0], DPB_ACTION_STOP);
    for (uint32_t r = 0; r < DPB_JOB_RANKS; r++)
        assert_true(dpb_control_try(&ranks[r], 3, &actions));
    assert_true(dpb_control_try(&ranks[0], 4, &actions)); /* commits for 5 */
    assert_true(dpb_control_try(&ranks[DPB_JOB_RANKS - 1], 5, &actions));
    assert_int_equal(actions, DPB_ACTION_STOP);
    for (uint32_t r = 0; r < DPB_JOB_RANKS; r++) {
        assert_false(dpb_control_all_left(&ranks[DPB_JOB_RANKS - 1]));
        dpb_control_leave(&ranks[r]);
    }
    assert_true(dpb_control_all_left(&ranks[DPB_JOB_RANKS - 1]));
    assert_memory_equal(memory.behind, untouched, sizeof untouched);
    assert_true(dpb_control_nap_us(&ranks[1]) >= DPB_JOB_RANKS * dpb_control_nap_us(&ranks[0]) / 2);
}

/* A peer that never comes ends the wait at the deadline, with a message. */
TEST_WITH(test_deadline, make_pair, NULL)
{
    uint32_t actions;
    dpb_status status;
    assert_int_equal(dpb_board_create(2, 4096, &dpb_world.board), DPB_OK);
    dpb_world.timeout_ns = 50000000;
    dpb_control_propose(&pair[0], DPB_ACTION_STOP);
    assert_int_equal(dpb_control_look(&pair[0], 4, &actions), DPB_OK);
    assert_int_equal(dpb_control_look(&pair[0], 5, &actions), DPB_OK);
    assert_int_equal(dpb_control_look(&pair[0], 6, &actions), DPB_TIMEOUT);
    assert_non_null(strstr(dpb_first_error(&status), "step 6"));
    dpb_first_error_clear();
    dpb_board_end_job(dpb_world.board);
    assert_int_equal(dpb_control_look(&pair[0], 6, &actions), DPB_PEER);
    dpb_board_destroy(dpb_world.board);
    dpb_world.board = NULL;
}

TEST_MAIN(NULL, NULL)
