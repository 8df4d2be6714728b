/*
 * follow_judge.c - each followed step against the optimizer's rule (rule.h), in float64.
 *
 * A step begins with the weights that a rank had. The rule's state follows from the optimizer's
 * note at the segment's first step, with a bound of its error. So the bound of a step grows with
 * roundings alone, and no right strategy exceeds it, in whichever order it sums.
 *
 * Equal replicas take one step, by the gradients of all workers. With a codec these are the
 * gradients that were fed: all gradients, less what the books beside the weights have gained.
 *
 * Replicas that meet now and then take a step each, by their own gradients alone. In an exchange
 * with a meeting the sum over all books, centres included, moves by the sum of these steps; and the
 * sum of the rule's states stays, whether the states are averaged or not. Meetings come with the
 * contract's period.
 */
#include "proof/follow_judge.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "exchange/access.h"
#include "proof/follow.h"
#include "graph/graph.h"
#include "proof/proving.h"
#include "proof/rule.h"
#include "world/store.h"

enum { ROWS = DPB_SEGMENT_STEPS, LARGEST_SHARE = 10 };

/* What one rank has recorded. Of a server the segment alone. */
struct given {
    struct dpb_segment *segment; /* the one under judgement */
    struct dpb_followed_terms terms;
    struct dpb_followed_end *ends;
    double *weights, *gradients; /* of the segment's rows, in float64 */
};

/* Of one element in one exchange. */
struct outcome {
    double from, to;
    struct dpb_known expected;
};

/* Of one worker, and the rule's state behind its step. */
struct replica {
    struct outcome outcome;
    struct dpb_rule_state state;
};

struct judging {
    const struct dpb_exchange *exchange;
    const struct dpb_follow *follow;
    const struct dpb_optimizer_settings *rule;
    struct dpb_arithmetic weights;
    uint32_t n_workers, n_ranks; /* n_ranks: servers too, if they have notes to give */
    bool apart, needs_notes;
    struct given *of;   /* by rank; rank 0's segment is @borrowed from its record */
    double coefficient; /* of the weights in the books, over all workers */
    double error;       /* of a sum of gradients, as a share of their magnitudes */
    /* Whether replicas may meet in exchanges of this phase, from the first; NULL: in any. */
    bool *meets;
    uint32_t rows; /* bit i: step i of the segment is known on all workers */
    /* Elements' steps that moved, and those whose bound says something about the step. */
    uint64_t n_moved, n_told;
    bool infinite;                    /* a number was not finite */
    bool unknown;                     /* books that the judge cannot add */
    struct replica *replicas;         /* of one element in one exchange, by rank */
    struct outcome (*outcomes)[ROWS]; /* of one element, by rank; the last ones of all together */
};

static dpb_status no_memory(void)
{
    return dpb_fail(DPB_NO_MEMORY, "no memory to compare the followed elements");
}

static const char *comm_of(const struct judging *j)
{
    return j->exchange->experiment->settings.comm.name;
}

/* ---- taking the records ---------------------------------------------------------------------- */

/* Workers but rank 0: all that they have, segment by segment. */
static dpb_status give_record(const struct dpb_follow *follow)
{
    char key[DPB_FOLLOW_KEY];
    dpb_follow_answer_key(dpb_world.rank, key);
    DPB_TRY(dpb_store_give_all(key, &follow->terms, sizeof follow->terms));
    if (follow->ends)
        DPB_TRY(dpb_store_give_all(key, follow->ends, follow->terms.n_ends * sizeof *follow->ends));
    for (const struct dpb_segment *s = dpb_follow_next(follow, 0); s;
         s = dpb_follow_next(follow, s->number + 1))
        DPB_TRY(dpb_store_give_all(key, s, follow->segment_bytes));
    return DPB_OK;
}

static dpb_status differ_in_length(const struct judging *j, uint32_t rank)
{
    return dpb_fail(DPB_VERIFICATION,
                    "steps check of comm '%s': rank %u has taken part in other exchanges than "
                    "rank 0; the strategy promises that all take part in each",
                    comm_of(j), rank);
}

static dpb_status take_terms(struct judging *j, uint32_t rank)
{
    struct given *given = &j->of[rank];
    const struct dpb_follow *follow = j->follow;
    char key[DPB_FOLLOW_KEY];
    dpb_follow_answer_key(rank, key);
    given->terms = follow->terms;
    if (rank > 0)
        DPB_TRY(dpb_store_take_all(rank, key, &given->terms, sizeof given->terms, "its books"));
    j->coefficient += given->terms.coefficient;
    if (given->terms.n_ends != follow->terms.n_ends)
        return differ_in_length(j, rank);
    if (!follow->ends)
        return DPB_OK;
    const size_t bytes = given->terms.n_ends * sizeof *given->ends;
    given->ends = malloc(bytes + 1);
    if (!given->ends)
        return no_memory();
    if (rank == 0)
        memcpy(given->ends, follow->ends, bytes);
    return rank == 0 ? DPB_OK : dpb_store_take_all(rank, key, given->ends, bytes, "its meetings");
}

static void cast_rows(const struct judging *j, struct given *given)
{
    const struct dpb_layout *layout = &j->exchange->layout;
    const uint64_t n = j->follow->n;
    dpb_vec.cast(DPB_FP64, given->weights, layout->weight_type,
                 dpb_segment_weights(j->follow, given->segment, 0), (ROWS + 1) * n);
    dpb_vec.cast(DPB_FP64, given->gradients, layout->gradient_type,
                 dpb_segment_gradients(j->follow, given->segment, 0), ROWS * n);
}

static dpb_status take_segment(struct judging *j, uint32_t rank, struct dpb_segment *own)
{
    struct given *given = &j->of[rank];
    const bool server = rank >= j->n_workers;
    const uint64_t number = own->number;
    char key[DPB_FOLLOW_KEY];
    if (rank == 0) {
        given->segment = own;
    } else {
        if (server) {
            dpb_follow_ask_key(rank, key);
            DPB_TRY(dpb_store_give(key, &number, sizeof number, 0));
        }
        dpb_follow_answer_key(rank, key);
        DPB_TRY(dpb_store_take_all(rank, key, given->segment, j->follow->segment_bytes,
                                   "its followed steps"));
    }
    if (server)
        return DPB_OK;
    if (given->segment->number != number)
        return differ_in_length(j, rank);
    const uint32_t weights = given->segment->weights;
    j->rows &= given->segment->gradients & weights & weights >> 1;
    cast_rows(j, given);
    return DPB_OK;
}

/* ---- one element ----------------------------------------------------------------------------- */

static bool decays(const struct judging *j, uint64_t element)
{
    const struct dpb_graph *graph = j->exchange->experiment->graph;
    return graph->tensors[dpb_graph_tensor_at(graph, element)].decays;
}

static uint64_t exchange_of(const struct judging *j, uint32_t row)
{
    return j->of[0].segment->number * DPB_SEGMENT_STEPS + row;
}

/* Updates of the optimizer with this exchange, from 1. */
static uint64_t update_of(const struct judging *j, uint32_t row)
{
    const struct dpb_experiment *experiment = j->exchange->experiment;
    return experiment->start.step - experiment->start.skipped_steps + exchange_of(j, row) -
           j->follow->first_exchange + 1;
}

/* Sets the note of rank's optimizer for element i before the row's exchange; NULL: it made none. */
static dpb_status find_note(const struct judging *j, uint32_t rank, uint32_t row, uint32_t i,
                            const struct dpb_followed_note **note)
{
    const struct dpb_segment *segment = j->of[rank].segment;
    *note = NULL;
    if (segment->number != j->of[0].segment->number)
        return DPB_OK;
    const struct dpb_followed_note *found = &dpb_segment_notes(j->follow, segment, row)[i];
    if (found->exchange != (uint32_t)exchange_of(j, row) + 1)
        return DPB_OK;
    *note = found;
    if (found->update == 0 || found->update == (uint32_t)update_of(j, row))
        return DPB_OK;
    return dpb_fail(DPB_VERIFICATION,
                    "steps check of comm '%s': rank %u made update %u of the weights in step %llu "
                    "of training, which is update %llu",
                    comm_of(j), rank, found->update,
                    (unsigned long long)j->of[0].segment->steps[row].number,
                    (unsigned long long)update_of(j, row));
}

static bool is_same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static bool have_same_factors(const struct dpb_followed_factors *a,
                              const struct dpb_followed_factors *b)
{
    return is_same(a->rate, b->rate) && is_same(a->scale, b->scale) && is_same(a->decay, b->decay);
}

static dpb_status agree_on_factors(const struct judging *j, uint32_t row, uint32_t rank, uint32_t i,
                                   uint32_t other, uint32_t k)
{
    if (!j->follow->has_factors ||
        have_same_factors(&dpb_segment_factors(j->follow, j->of[rank].segment, row)[i],
                          &dpb_segment_factors(j->follow, j->of[other].segment, row)[k]))
        return DPB_OK;
    return dpb_fail(DPB_VERIFICATION,
                    "steps check of comm '%s': in step %llu of training ranks %u and %u scaled "
                    "their updates by different norms",
                    comm_of(j), (unsigned long long)j->of[0].segment->steps[row].number, other,
                    rank);
}

/* The same of the first rank in [first, end) that owns the element. Owners agree on their
 * factors. */
static dpb_status find_owners_note(const struct judging *j, uint32_t first, uint32_t end,
                                   uint32_t row, uint32_t i, uint32_t *owner,
                                   const struct dpb_followed_note **note)
{
    const struct dpb_followed_note *found;
    char name[DPB_ELEMENT_NAME];
    *note = NULL;
    for (uint32_t rank = first; rank < end; rank++) {
        DPB_TRY(find_note(j, rank, row, i, &found));
        if (found && *note)
            DPB_TRY(agree_on_factors(j, row, rank, i, *owner, i));
        if (found && !*note) {
            *note = found;
            *owner = rank;
        }
    }
    if (*note)
        return DPB_OK;
    return dpb_fail(
        DPB_VERIFICATION,
        "steps check of comm '%s': in step %llu of training no rank has had %s updated by the "
        "optimizer, which keeps the rule's state",
        comm_of(j), (unsigned long long)j->of[0].segment->steps[row].number,
        dpb_element_name(j->exchange, dpb_segment_elements(j->follow, j->of[0].segment)[i], name));
}

static struct dpb_rule_state state_of(const struct judging *j, const struct dpb_followed_note *note)
{
    const bool sums = j->rule->kind == DPB_ADAGRAD || j->rule->kind == DPB_RMSPROP;
    return (struct dpb_rule_state){.first.is = sums ? note->second : note->first,
                                   .second.is = sums ? note->first : note->second};
}

/* Those of the settings, or of the norms that `owner` used. */
static struct dpb_rule_factors factors_of(const struct judging *j, uint32_t owner, uint32_t row,
                                          uint32_t i)
{
    const struct dpb_followed_step *step = &j->of[0].segment->steps[row];
    if (!j->follow->has_factors)
        return (struct dpb_rule_factors){step->rate, step->scale, j->rule->weight_decay};
    const struct dpb_followed_factors *used =
        &dpb_segment_factors(j->follow, j->of[owner].segment, row)[i];
    return (struct dpb_rule_factors){used->rate, used->scale, used->decay};
}

/* clip_norm makes a gradient smaller, never larger; LARS's local rate is one for gradient and
 * decay; LAMB's ratio is 1 without decay. Whether a norm is that of all gradients shows in no
 * single element. */
static bool may_be_factors(const struct judging *j, const struct dpb_followed_step *step,
                           bool decays, const struct dpb_rule_factors *factors)
{
    const bool any_rate = j->rule->kind == DPB_LAMB && decays && factors->rate >= 0.0;
    const double slack = 1.0 + 1e-12;
    if (!j->follow->has_factors)
        return true;
    if (j->rule->kind != DPB_LARS)
        return (any_rate || factors->rate == step->rate) &&
               factors->decay == j->rule->weight_decay && factors->scale >= 0.0 &&
               factors->scale <= step->scale * slack;
    return factors->rate == 1.0 && factors->scale >= 0.0 && factors->decay >= 0.0 &&
           factors->scale * j->rule->weight_decay <= factors->decay * step->scale * slack;
}

static struct dpb_followed_books books_at(const struct judging *j, uint32_t rank, uint32_t row,
                                          uint32_t i)
{
    return j->follow->has_books ? dpb_segment_books(j->follow, j->of[rank].segment, row)[i]
                                : (struct dpb_followed_books){0};
}

/* The gradients of ranks [first, end) in units of the weights' step, less what their books keep. */
static struct dpb_known sum_of(const struct judging *j, uint32_t first, uint32_t end, uint32_t row,
                               uint32_t i)
{
    const dpb_dtype type = j->exchange->layout.gradient_type;
    const double share = j->exchange->plan.contract.share;
    double sum = 0.0, magnitude = 0.0;
    for (uint32_t rank = first; rank < end; rank++) {
        const double gradient = j->of[rank].gradients[row * j->follow->n + i];
        sum += gradient;
        magnitude += fabs(gradient);
        if (j->apart)
            continue;
        const struct dpb_followed_books before = books_at(j, rank, row, i);
        const struct dpb_followed_books after = books_at(j, rank, row + 1, i);
        sum -= (after.sum - before.sum) / share;
        magnitude += (before.size + after.size) / share;
    }
    const double tiny = (end - first + 1.0) * dpb_smallest_normal(type);
    return (struct dpb_known){sum, j->error * magnitude + tiny};
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static bool is_finite(const struct outcome *o)
{
    return isfinite(o->from) && isfinite(o->to) && isfinite(o->expected.is) &&
           isfinite(o->expected.off);
}

static bool holds(const struct outcome *o)
{
    return fabs(o->to - o->expected.is) <= o->expected.off;
}

static dpb_status wrong(const struct judging *j, uint32_t row, uint32_t i, const char *whose,
                        const struct outcome *o, const char *what)
{
    char name[DPB_ELEMENT_NAME];
    return dpb_fail(
        DPB_VERIFICATION,
        "steps check of comm '%s': %s%s went from %.9g to %.9g in step %llu of training, not to "
        "%.9g (within %.3g); that is not %s",
        comm_of(j), whose,
        dpb_element_name(j->exchange, dpb_segment_elements(j->follow, j->of[0].segment)[i], name),
        o->from, o->to, (unsigned long long)j->of[0].segment->steps[row].number, o->expected.is,
        o->expected.off, what);
}

/* A bound near the step itself is no evidence. */
static void count_told(struct judging *j, const struct outcome outcomes[ROWS], uint32_t rows)
{
    double largest = 0.0;
    for (uint32_t row = 0; row < ROWS; row++)
        if (rows >> row & 1)
            largest = fmax(largest, fabs(outcomes[row].to - outcomes[row].from));
    for (uint32_t row = 0; row < ROWS && largest > 0.0; row++) {
        if (!(rows >> row & 1))
            continue;
        j->n_moved++;
        j->n_told += LARGEST_SHARE * outcomes[row].expected.off <= largest;
    }
}

/* ---- equal replicas -------------------------------------------------------------------------- */

static bool is_away(const char *weight, size_t size)
{
    while (size > 0 && weight[size - 1] == (char)0xff)
        size--;
    return size == 0;
}

/* A weight that was away from rank 0 is taken from the first rank that had it. */
static bool take_or_compare(const struct judging *j, uint32_t rank, uint32_t row)
{
    const size_t size = dpb_dtype_size(j->exchange->layout.weight_type);
    char *own = dpb_segment_weights(j->follow, j->of[0].segment, row);
    const char *other = dpb_segment_weights(j->follow, j->of[rank].segment, row);
    for (uint32_t i = 0; i < j->follow->n; i++, own += size, other += size) {
        if (is_away(own, size))
            memcpy(own, other, size);
        else if (!is_away(other, size) && memcmp(own, other, size) != 0)
            return false;
    }
    return true;
}

static dpb_status compare_replicas(const struct judging *j)
{
    for (uint32_t row = 0; row <= ROWS; row++)
        for (uint32_t rank = 1; rank < j->n_workers; rank++)
            if ((j->rows | j->rows << 1) >> row & 1 && !take_or_compare(j, rank, row))
                return dpb_fail(
                    DPB_VERIFICATION,
                    "steps check of comm '%s': %s step %llu of training the weights of rank 0 and "
                    "of rank %u differed; the strategy promises equal bits after each step",
                    comm_of(j), j->rows >> row & 1 ? "before" : "after",
                    (unsigned long long)j->of[0]
                        .segment->steps[j->rows >> row & 1 ? row : row - 1]
                        .number,
                    rank);
    cast_rows(j, &j->of[0]);
    return DPB_OK;
}

/* Makes the outcome of a step of equal replicas, and moves the state. */
static void step_together(const struct judging *j, uint32_t owner, uint32_t row, uint32_t i,
                          struct dpb_rule_state *state, struct outcome *o)
{
    const struct dpb_contract *contract = &j->exchange->plan.contract;
    const double *weights = j->of[0].weights;
    struct dpb_rule_factors factors = factors_of(j, owner, row, i);
    factors.scale *= contract->share * contract->divisor / j->coefficient;
    o->from = weights[row * j->follow->n + i];
    o->to = weights[(row + 1) * j->follow->n + i];
    o->expected = dpb_rule_step(j->rule, &factors, update_of(j, row),
                                decays(j, dpb_segment_elements(j->follow, j->of[0].segment)[i]),
                                o->from, sum_of(j, 0, j->n_workers, row, i), &j->weights, state);
    /* The contract's roundings may be of weights and of the rule's state: a copy of few bits. Those
     * of a codec are of gradients. */
    const double rounded = j->follow->has_books ? 0.0 : contract->roundings * j->weights.unit;
    state->first.off += rounded * fabs(state->first.is);
    o->expected.off +=
        j->weights.smallest + rounded * (fabs(o->from) + fmax(fabs(o->to), fabs(o->expected.is)));
}

/* The first element with the factors of element i: of its tensor, or, without factors by tensor, of
 * all. */
static uint32_t first_alike(const struct judging *j, uint32_t i)
{
    const struct dpb_experiment *experiment = j->exchange->experiment;
    const uint64_t *elements = dpb_segment_elements(j->follow, j->of[0].segment);
    uint32_t k = 0;
    if (dpb_optimizer_by_tensor(&experiment->settings.optimizer))
        while (dpb_graph_tensor_at(experiment->graph, elements[k]) !=
               dpb_graph_tensor_at(experiment->graph, elements[i]))
            k++;
    return k;
}

/* Owners of parts of the model agree, too. */
static dpb_status judge_factors(const struct judging *j, uint32_t row, uint32_t owner, uint32_t i,
                                uint32_t k)
{
    const struct dpb_followed_note *note;
    uint32_t other = 0;
    if (k == i || !j->follow->has_factors)
        return DPB_OK;
    DPB_TRY(find_owners_note(j, 0, j->n_ranks, row, k, &other, &note));
    return agree_on_factors(j, row, owner, i, other, k);
}

static dpb_status judge_together(struct judging *j, uint32_t i)
{
    static const char what[] = "the optimizer's update by the mean gradient";
    struct outcome outcomes[ROWS];
    struct dpb_rule_state state = {.first = {0.0, 0.0}};
    const struct dpb_followed_note *note;
    uint32_t owner = 0, rows = 0, row = (uint32_t)__builtin_ctz(j->rows);
    const uint32_t alike = first_alike(j, i);
    for (const uint32_t first = row; row < ROWS && j->rows >> row & 1; row++) {
        if (j->needs_notes && (row == first || j->follow->has_factors)) {
            DPB_TRY(find_owners_note(j, 0, j->n_ranks, row, i, &owner, &note));
            DPB_TRY(judge_factors(j, row, owner, i, alike));
            if (row == first)
                state = state_of(j, note);
        }
        const struct dpb_rule_factors factors = factors_of(j, owner, row, i);
        struct outcome *o = &outcomes[row];
        step_together(j, owner, row, i, &state, o);
        if (!is_finite(o)) { /* the rest of the segment moved, and shows nothing */
            j->infinite = true;
            j->n_moved += (uint64_t)__builtin_popcount(j->rows >> row);
            break;
        }
        if (!may_be_factors(j, &j->of[0].segment->steps[row],
                            decays(j, dpb_segment_elements(j->follow, j->of[0].segment)[i]),
                            &factors))
            return wrong(j, row, i, "", o, "an update by factors of norms");
        if (!holds(o))
            return wrong(j, row, i, "", o, what);
        rows |= 1U << row;
    }
    count_told(j, outcomes, rows);
    return DPB_OK;
}

/* ---- replicas that meet ---------------------------------------------------------------------- */

static dpb_status step_apart(const struct judging *j, uint32_t row, uint32_t i)
{
    const struct dpb_contract *contract = &j->exchange->plan.contract;
    const uint64_t element = dpb_segment_elements(j->follow, j->of[0].segment)[i];
    for (uint32_t rank = 0; rank < j->n_workers; rank++) {
        const struct given *given = &j->of[rank];
        struct outcome *o = &j->replicas[rank].outcome;
        struct dpb_rule_state *state = &j->replicas[rank].state;
        uint32_t owner = rank;
        const struct dpb_followed_note *note;
        *state = (struct dpb_rule_state){.first = {0.0, 0.0}};
        if (j->needs_notes) {
            DPB_TRY(find_owners_note(j, rank, rank + 1, row, i, &owner, &note));
            *state = state_of(j, note);
        }
        struct dpb_rule_factors factors = factors_of(j, owner, row, i);
        factors.scale *= contract->share * contract->divisor / given->terms.coefficient;
        o->from = given->weights[row * j->follow->n + i];
        o->to = given->weights[(row + 1) * j->follow->n + i];
        o->expected = dpb_rule_step(j->rule, &factors, update_of(j, row), decays(j, element),
                                    o->from, sum_of(j, rank, rank + 1, row, i), &j->weights, state);
        o->expected.off += j->weights.smallest;
    }
    return DPB_OK;
}

/* By the note before the next exchange. */
static dpb_status judge_state(const struct judging *j, uint32_t row, uint32_t i, bool met)
{
    static const char what[] = "the state that the replicas' own gradients lead to";
    struct dpb_known sum[2] = {{0, 0}, {0, 0}};
    double is[2] = {0, 0};
    const double rounded = j->exchange->plan.contract.roundings * j->weights.unit;
    for (uint32_t rank = 0; rank < j->n_workers; rank++) {
        const struct dpb_followed_note *note;
        uint32_t owner = rank;
        DPB_TRY(find_owners_note(j, rank, rank + 1, row + 1, i, &owner, &note));
        const struct dpb_rule_state now = state_of(j, note);
        const struct dpb_known *then[2] = {&j->replicas[rank].state.first,
                                           &j->replicas[rank].state.second};
        const double values[2] = {now.first.is, now.second.is};
        for (int k = 0; k < 2; k++) {
            is[k] = (met ? is[k] : 0.0) + values[k];
            sum[k].is = (met ? sum[k].is : 0.0) + then[k]->is;
            sum[k].off = (met ? sum[k].off : 0.0) + then[k]->off + j->weights.smallest +
                         (met ? rounded * (fabs(then[k]->is) + fabs(values[k])) : 0.0);
            const struct outcome o = {then[k]->is, is[k], sum[k]};
            if ((!met || rank + 1 == j->n_workers) && is_finite(&o) && !holds(&o))
                return wrong(j, row, i, "the optimizer's state of ", &o, what);
        }
    }
    return DPB_OK;
}

/* The mean of the weights in the books, centres included. */
static struct outcome mean_of(const struct judging *j, uint32_t row, uint32_t i)
{
    const double rounded =
        j->exchange->plan.contract.roundings * j->weights.unit + j->n_workers * DBL_EPSILON;
    const double all = 1.0 / j->coefficient;
    struct outcome mean = {0};
    for (uint32_t rank = 0; rank < j->n_workers; rank++) {
        const struct outcome *o = &j->replicas[rank].outcome;
        const struct dpb_followed_books before = books_at(j, rank, row, i);
        const struct dpb_followed_books after = books_at(j, rank, row + 1, i);
        const double part = all * j->of[rank].terms.coefficient;
        mean.from += part * o->from + all * before.sum;
        mean.to += part * o->to + all * after.sum;
        mean.expected.is += part * o->expected.is + all * before.sum;
        mean.expected.off +=
            part * o->expected.off + all * rounded * (before.size + after.size) +
            part * rounded * (fabs(o->from) + fmax(fabs(o->to), fabs(o->expected.is)));
    }
    return mean;
}

static bool may_meet(const struct judging *j, uint32_t row)
{
    const uint64_t n = exchange_of(j, row) - j->follow->first_exchange;
    return !j->meets || j->meets[n % j->exchange->plan.contract.parameter];
}

/* Replicas may begin anew from their centre where the rate drops. */
static bool restarts(const struct judging *j, uint64_t n)
{
    const struct dpb_followed_end *ends = j->of[0].ends;
    if (!j->follow->has_books || n >= j->of[0].terms.n_ends)
        return false;
    return n == 0 ? j->exchange->experiment->start.step > 0
                  : ends[n].rate <= 0.5 * ends[n - 1].rate;
}

/* Element i of all replicas in one exchange. Between meetings no replica moves by anything but its
 * own gradient. *alone: nor did it here. */
static dpb_status judge_apart(struct judging *j, uint32_t row, uint32_t i, bool *alone)
{
    static const char what[] = "the mean of the replicas' updates by their own gradients";
    static const char alone_what[] =
        "the optimizer's update by the replica's own gradient, and no meeting is due";
    struct outcome *mean = &j->outcomes[j->n_workers][row];
    DPB_TRY(step_apart(j, row, i));
    *mean = mean_of(j, row, i);
    *alone = true;
    if (!is_finite(mean)) {
        j->infinite = true;
        j->n_moved += j->n_workers;
        return DPB_OK;
    }
    for (uint32_t rank = 0; rank < j->n_workers; rank++) {
        const struct outcome *o = &j->outcomes[rank][row];
        j->outcomes[rank][row] = j->replicas[rank].outcome;
        *alone = *alone && holds(o);
        if (!*alone && !may_meet(j, row))
            return wrong(j, row, i, "in one replica ", o, alone_what);
    }
    if (!holds(mean))
        return wrong(j, row, i, "the mean of ", mean, what);
    return j->needs_notes && row + 1 < ROWS && j->rows >> (row + 1) & 1
               ? judge_state(j, row, i, may_meet(j, row))
               : DPB_OK;
}

static dpb_status judge_replicas(struct judging *j, uint32_t i)
{
    uint32_t rows_alone = 0, rows = 0;
    for (uint32_t row = 0; row < ROWS; row++) {
        bool alone;
        const uint64_t n = exchange_of(j, row) - j->follow->first_exchange;
        if (!(j->rows >> row & 1) || restarts(j, n))
            continue;
        DPB_TRY(judge_apart(j, row, i, &alone));
        if (!is_finite(&j->outcomes[j->n_workers][row]))
            continue;
        rows |= 1U << row;
        rows_alone |= (uint32_t)alone << row;
    }
    for (uint32_t rank = 0; rank < j->n_workers; rank++)
        count_told(j, j->outcomes[rank], rows_alone);
    count_told(j, j->outcomes[j->n_workers], rows);
    return DPB_OK;
}

/* ---- meetings -------------------------------------------------------------------------------- */

struct likeness {
    bool all, some; /* pairs of replicas are equal */
};

/* After n exchanges. */
static struct likeness likeness_at(const struct judging *j, uint64_t n)
{
    struct likeness likeness = {.all = true, .some = j->n_workers == 1};
    for (uint32_t a = 0; a < j->n_workers; a++)
        for (uint32_t b = 0; b < a; b++) {
            const bool equal = j->of[a].ends[n].weights == j->of[b].ends[n].weights;
            likeness.all = likeness.all && equal;
            likeness.some = likeness.some || equal;
        }
    return likeness;
}

/* Whether exchange n changed what a worker's books name beside its weights. */
static bool have_moved(const struct judging *j, uint64_t n)
{
    bool moved = false;
    for (uint32_t rank = 0; rank < j->n_workers; rank++)
        moved = moved || j->of[rank].ends[n + 1].books != j->of[rank].ends[n].books;
    return moved;
}

/* Whether exchange n leaves the replicas as a meeting does: all equal; in pairs, some; or what the
 * books name has moved: a centre, of which each worker may have a part, or a residual. Replicas
 * that begin where their centre is do not move it, nor do steps that are lost in its roundings. */
static bool have_met(const struct judging *j, uint64_t n, double most_rate)
{
    const struct dpb_followed_end *ends = j->of[0].ends;
    const struct likeness after = likeness_at(j, n + 1);
    if (j->follow->books.n > 0)
        return after.all || likeness_at(j, n).all || restarts(j, n) ||
               ends[n].rate < 1e-3 * most_rate || have_moved(j, n);
    return j->follow->has_books ? after.some : after.all;
}

static uint64_t count_exchanges(const struct judging *j)
{
    return j->of[0].terms.n_ends > 0 ? j->of[0].terms.n_ends - 1 : 0;
}

/* Finds the phases of the period at which replicas have met each time. */
static dpb_status find_meetings(struct judging *j)
{
    const uint64_t period = j->exchange->plan.contract.parameter;
    const uint64_t n = count_exchanges(j);
    /* A strategy whose meetings show in its books alone, and whose workers may be a period ahead,
     * meets without what a meeting before has exchanged: the first one moves nothing. */
    const bool late = j->follow->books.n > 0 && j->exchange->plan.contract.lead >= period;
    uint64_t n_phases = period;
    double most_rate = 0.0;
    for (uint64_t at = 0; at < n; at++)
        most_rate = fmax(most_rate, j->of[0].ends[at].rate);
    j->meets = calloc(period, sizeof *j->meets);
    if (!j->meets)
        return no_memory();
    for (uint64_t phase = 0; phase < period; phase++) {
        j->meets[phase] = true;
        for (uint64_t at = phase + (late ? period : 0); at < n && j->meets[phase]; at += period)
            j->meets[phase] = have_met(j, at, most_rate);
        n_phases -= !j->meets[phase];
    }
    if (n_phases > 0)
        return DPB_OK;
    free(j->meets);
    j->meets = NULL; /* a step that is wrong says more */
    return DPB_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static dpb_status judge_segment(struct judging *j, struct dpb_segment *own)
{
    j->rows = (1U << ROWS) - 1;
    for (uint32_t rank = 0; rank < j->n_ranks; rank++)
        DPB_TRY(take_segment(j, rank, own));
    if (j->unknown || !j->rows)
        return DPB_OK;
    if (!j->apart)
        DPB_TRY(compare_replicas(j));
    for (uint32_t i = 0; i < j->follow->n; i++)
        DPB_TRY(j->apart ? judge_replicas(j, i) : judge_together(j, i));
    return DPB_OK;
}

static dpb_status make(const struct dpb_exchange *exchange, struct judging *j)
{
    const struct dpb_experiment *experiment = exchange->experiment;
    const struct dpb_follow *follow = dpb_follow_of(exchange);
    const bool apart = dpb_follow_apart(exchange), notes = dpb_follow_notes(exchange);
    const uint32_t n_workers = experiment->n_workers;
    *j = (struct judging){.exchange = exchange,
                          .follow = follow,
                          .rule = &experiment->settings.optimizer,
                          .weights = dpb_arithmetic_of(exchange->layout.weight_type),
                          .n_workers = n_workers,
                          .n_ranks = notes ? dpb_world.n_ranks : n_workers,
                          .apart = apart,
                          .needs_notes = notes,
                          /* The sum in float64 that it is compared with is rounded, too. */
                          .error = (apart ? 0.0 : dpb_proof_error(exchange, false)) +
                                   n_workers * DBL_EPSILON};
    j->replicas = calloc(n_workers, sizeof *j->replicas);
    j->outcomes = calloc(n_workers + 1, sizeof *j->outcomes);
    j->of = calloc(j->n_ranks, sizeof *j->of);
    for (uint32_t rank = 0; j->of && rank < j->n_ranks; rank++) {
        struct given *given = &j->of[rank];
        given->segment = rank > 0 ? malloc(follow->segment_bytes) : NULL;
        given->weights = malloc((ROWS + 1) * follow->n * sizeof *given->weights);
        given->gradients = malloc(ROWS * follow->n * sizeof *given->gradients);
        if ((rank > 0 && !given->segment) || !given->weights || !given->gradients)
            return no_memory();
    }
    return j->of && j->replicas && j->outcomes ? DPB_OK : no_memory();
}

static void destroy(struct judging *j)
{
    for (uint32_t rank = 0; j->of && rank < j->n_ranks; rank++) {
        if (rank > 0)
            free(j->of[rank].segment);
        free(j->of[rank].ends);
        free(j->of[rank].weights);
        free(j->of[rank].gradients);
    }
    free(j->of);
    free(j->replicas);
    free(j->outcomes);
    free(j->meets);
}

static dpb_status judge_all(struct judging *j)
{
    const struct dpb_follow *follow = j->follow;
    for (uint32_t rank = 0; rank < j->n_workers; rank++) {
        DPB_TRY(take_terms(j, rank));
        j->unknown = j->unknown || j->of[rank].terms.has_other_units ||
                     (j->apart && !(j->of[rank].terms.coefficient > 0.0));
    }
    j->unknown = j->unknown || !(j->coefficient > 0.0);
    if (j->apart)
        DPB_TRY(find_meetings(j));
    for (struct dpb_segment *s = dpb_follow_next(follow, 0); s;
         s = dpb_follow_next(follow, s->number + 1))
        DPB_TRY(judge_segment(j, s));
    if (!j->apart || j->meets || j->unknown)
        return DPB_OK;
    return dpb_fail(DPB_VERIFICATION,
                    "steps check of comm '%s': the replicas never looked after every %u. exchange "
                    "as a meeting leaves them; its contract says that they meet",
                    comm_of(j), j->exchange->plan.contract.parameter);
}

/* Why no more than the ends is shown; NULL: the steps are. */
static const char *shortcoming(const struct judging *j)
{
    if (j->unknown)
        return "the books name no weights, or have other units";
    if (j->n_moved == 0)
        return "no followed weight moved";
    if (2 * j->n_told < j->n_moved)
        return j->infinite ? "a followed number is not finite"
                           : "most followed steps are near their roundings";
    if (j->apart && j->n_workers > 1 && count_exchanges(j) < j->exchange->plan.contract.parameter)
        return "the run ended before a meeting was due";
    return NULL;
}

static dpb_status judge(const struct dpb_exchange *exchange, const char **why)
{
    struct judging j;
    *why = NULL;
    if (dpb_world.rank > 0)
        return give_record(dpb_follow_of(exchange));
    dpb_status status = make(exchange, &j);
    DPB_THEN(status, judge_all(&j));
    *why = shortcoming(&j);
    destroy(&j);
    return status;
}

dpb_status dpb_follow_judge(struct dpb_exchange *exchange, struct dpb_journal *journal)
{
    const char *why;
    if (!dpb_follow_of(exchange))
        return DPB_OK;
    dpb_world_note("steps check", UINT64_MAX, UINT32_MAX);
    journal->verdict_steps = DPB_VERDICT_FAIL;
    DPB_TRY(judge(exchange, &why));
    DPB_TRY(dpb_workers_meet());
    journal->verdict_steps = why ? DPB_VERDICT_SKIPPED : DPB_VERDICT_PASS;
    snprintf(journal->steps_reason, sizeof journal->steps_reason, "%s", why ? why : "");
    return DPB_OK;
}
