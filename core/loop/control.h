/*
 * control.h - the ranks' agreement on a change of phase: warm-up is over, evaluate now, stop.
 *
 * Rank 0 proposes. Each rank acknowledges at the start of a step, with that step. Rank 0 commits
 * for the step two past the highest acknowledged, and all ranks act at the start of that step. A
 * rank that has acknowledged at step a does not begin step a + 2 before it has seen the commit. So
 * no rank can be past the committed step, however far apart the ranks run. One proposal is under
 * way at a time; actions proposed meanwhile go into the next. Proposals never travel on the
 * strategy's own path.
 *
 * Where each rank has a board of its own (launch/party.h) the words travel, each rank's in order,
 * and arrive late. Only the proposal must not be late. A rank that has acknowledged holds two steps
 * later. Another rank that has not seen the proposal may have begun that step, and would wait there
 * for the first. So rank 0, having proposed at its step s, begins s only once every board is
 * confirmed to have the proposal. Where steps are exchanged, no rank ends step s without rank 0. So
 * every rank acknowledges at s + 1 at the latest, and holds at s + 2 or before until the commit
 * comes. No rank that has acknowledged keeps another from the commit. Ranks that do not exchange
 * wait for no other in a step, so a late word only makes them hold longer.
 *
 * With comm.late a rank may end step s without rank 0, but not step s + 1. So the last
 * acknowledgement comes at s + 2. A rank that holds has handed over the gradients of all steps
 * before, and keeps no other rank from reaching that step.
 *
 * With a lead of L a rank may be L steps ahead of another, and wait within a step for the other to
 * come there. Rank 0 must come out of each step that it enters, or it never commits. So must a rank
 * that has not acknowledged, or it never looks.
 *
 *   - On one board (`step_of`) a rank that has acknowledged holds only at a step in which there is
 *     no such rank. Such a rank acknowledges at the step where `step_of` has it, or one later. So
 *     rank 0 begins no step past H + 1, where H is the highest acknowledgement. `step_of` has rank
 *     0 at H + 2 at most, where it may hold. Others then begin no step past H + 2, and the commit
 *     is for H + 3.
 *   - On several boards (`lead`) news of steps may overtake acknowledgements. When rank 0 proposes
 *     at step s, the others are in [s - L, s + L]. So rank 0 holds at s + 2 + L, a rank that has
 *     acknowledged at step a at a + 2 + 2 L, and the commit is for 2 + 2 L steps past the highest.
 *
 * Where a rank may be any number of steps ahead of another, or where nobody waits for a rank that
 * has settled, a common step would make the slow ranks train for as long as they are behind
 * (`apart`: contract.lead is UINT32_MAX, or not 0 with the hook `settle`). There no rank holds, and
 * each acts at the first look that finds the commit. All ranks must enter a pause at the same step:
 * rank 0 grants the pause once all have arrived there. Ranks look while they wait for the grant, so
 * a stop ends that wait. All ranks enter a granted pause. Rank 0 enters the pause, too, and commits
 * nothing before it has left the pause.
 *
 * No rank waits for a word of a lost rank (dpb_board_lost).
 *
 * Ranks that do not exchange may end far apart. A rank that begins no further step leaves: no rank
 * waits for its acknowledgement any more. Rank 0 commits for the others until all have left.
 */
#ifndef DPB_CORE_LOOP_CONTROL_H
#define DPB_CORE_LOOP_CONTROL_H

#include "dpbench/status.h"
#include "dpbench/types.h"
#include "world/board.h"

enum {
    DPB_ACTION_TIMED = 1,      /* warm-up is over: this is the first timed step */
    DPB_ACTION_UNSTEADY = 2,   /* with TIMED: the gate's limit passed */
    DPB_ACTION_STOP = 4,       /* do not begin this step */
    DPB_ACTION_INTERRUPTED = 8 /* with STOP: a signal came */
};

/* In memory shared by all workers of a board, zeroed at first. Every word has one writer. `commit`
 * holds a sequence number in its upper half and the actions in its lower half, so one read gets
 * both. */
struct dpb_control_block {
    uint64_t proposal; /* sequence */
    uint64_t commit;   /* sequence << 32 | actions; commit_step was written before */
    uint64_t commit_step;
    uint64_t confirmed; /* the last proposal that is on every board */
    uint64_t granted;   /* apart: the last pause that all are at, by its step */
    uint64_t unused[3];
    struct {
        uint64_t step; /* written before the sequence */
        uint64_t sequence;
        uint64_t left;  /* 1: begins no further step */
        uint64_t pause; /* apart: the last pause that it has arrived at, by its step */
    } acks[DPB_JOB_RANKS];
    /* Number of the agreement << 8 | value; even and odd ones: a rank may be one ahead of
     * another. */
    uint64_t said[2][DPB_JOB_RANKS];
};

/* Posts a write on this board to the other boards: dpb_store_post, or in tests a function that
 * delays it. */
typedef dpb_status (*dpb_control_tell)(void *context, const struct dpb_post *post);

/* A rank's view of the control block. */
struct dpb_control {
    struct dpb_control_block *block;
    dpb_control_tell tell; /* NULL: all ranks share one board */
    void *context;
    uint32_t rank, n_ranks;
    struct dpb_board *board;    /* knows the lost ranks; NULL: none is lost */
    uint32_t n_left;            /* the ranks below this one are known to have left */
    uint64_t acked, acked_step; /* 0: nothing under way here */
    uint64_t done;              /* sequence of the last action taken */
    uint64_t committed;         /* its step: apart, the highest that a rank had acknowledged at */
    bool apart;                 /* set after init */
    /* Likewise, with a lead: of the contract, where there are several boards; else 0. On one board
     * the step that a rank looks before or is in; else NULL. */
    uint64_t lead, (*step_of)(const struct dpb_control *control, uint32_t rank);
    /* Set after init, with its argument; NULL: none. dpb_control_look calls it between looks, for
     * work of this rank that other ranks may need before their next look. */
    dpb_status (*meanwhile)(void *owner);
    void *owner;
    uint32_t wanted;     /* rank 0: proposed in the next round */
    uint32_t proposed;   /* rank 0: in the round under way */
    uint64_t agreements; /* begun */
};

void dpb_control_init(struct dpb_control *control, struct dpb_control_block *block, uint32_t rank,
                      uint32_t n_ranks);
/* Called once, where there are several boards. */
void dpb_control_relay(struct dpb_control *control, dpb_control_tell tell, void *context);
/* Init and, if there are several boards, relay: for this rank. */
void dpb_control_join(struct dpb_control *control, uint32_t n_workers, bool apart, uint32_t lead);
/* Rank 0, at any time between two looks. */
void dpb_control_propose(struct dpb_control *control, uint32_t actions);
/* At the start of `step`, before it begins. True: *actions (0: none) are to be done now and the
 * step may begin. False: the commit is due and not there; look again. */
bool dpb_control_try(struct dpb_control *control, uint64_t step, uint32_t *actions);
/* Apart, at the start of `step`, where all pause: arrive notes that this rank is there. Between the
 * looks that follow, may_pause returns whether all are. */
void dpb_control_arrive(struct dpb_control *control, uint64_t step);
bool dpb_control_may_pause(struct dpb_control *control, uint64_t step);
/* Instead of a further look: this rank begins no step any more. */
void dpb_control_leave(struct dpb_control *control);
/* After leave: whether all ranks have left. Repeat the call until it returns true: rank 0 serves
 * the others by it. */
bool dpb_control_all_left(struct dpb_control *control);
/* The pause between two such calls, longer with more ranks: all together look equally often. */
uint32_t dpb_control_nap_us(const struct dpb_control *control);
/*
 * An agreement: the maximum of one value of every rank. Each rank says its value, then hears until
 * the value of all ranks is known. All ranks take part in every agreement, and say nothing further
 * before they have heard.
 */
void dpb_control_say(struct dpb_control *control, uint8_t value);
bool dpb_control_hear(const struct dpb_control *control, uint8_t *highest);
/* Says and hears. Waits up to the run's deadline. */
dpb_status dpb_control_agree(struct dpb_control *control, uint64_t step, uint8_t value,
                             uint8_t *highest);
/* dpb_control_try, waiting (in short sleeps) up to the run's deadline. */
dpb_status dpb_control_look(struct dpb_control *control, uint64_t step, uint32_t *actions);

#endif
