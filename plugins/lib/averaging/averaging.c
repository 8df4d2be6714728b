/* averaging.c - see averaging.h. */
#include "lib/averaging/averaging.h"

#include <stdio.h>

#include "lib/averaging/across.h"
#include "lib/averaging/difference.h"
#include "lib/strategy/slices.h"

static const struct dpb_host *host;
static const struct dpb_plugin *plugin;
static dpb_averaging_rule_of rule_of;

/* Kinds of work, each by a lane of its own. */
enum { MEETS = DPB_DEVICE_UPDATES + 1, TAKES };

static bool keeps_velocity(const struct dpb_averaging_rule *rule)
{
    return rule->centre_momentum > 0 || rule->learners > 0;
}

/* Returns the first worker of the worker's place. */
static uint32_t first_of(const struct dpb_averaging_rule *rule, uint32_t rank)
{
    return rank - rank % rule->learners;
}

/* ---- memory -------------------------------------------------------------------------------- */

static uint64_t bytes_of(const struct dpb_averaging *self, uint64_t elements)
{
    return elements * dpb_dtype_size(self->comm.base.arenas.layout.weight_type);
}

/* The fences that the rank has reached. In its scratch behind the signal page. */
static struct dpb_flag *fence_of(const struct dpb_averaging *self, uint32_t rank)
{
    char *scratch = self->comm.base.arenas.peer_scratch[rank];
    return (struct dpb_flag *)(void *)(scratch + self->fence_at);
}

static void *in_inbox(const struct dpb_averaging *self, uint32_t rank, uint64_t area, uint64_t at)
{
    return (char *)self->comm.base.arenas.peer_inbox[rank] + area + bytes_of(self, at);
}

static uint64_t area_of(const struct dpb_layout *layout)
{
    return dpb_strategy_lines(layout->n_elements * dpb_dtype_size(layout->weight_type));
}

/* c from arena element `at` on. */
static void *own_of(const struct dpb_averaging *self, uint32_t rank, uint64_t at)
{
    return in_inbox(self, rank, 0, at);
}

/* Likewise a copy of an array of the optimizer's state, for others to read. */
static void *shown_state(const struct dpb_averaging *self, uint32_t rank, uint32_t array,
                         uint64_t at)
{
    return in_inbox(self, rank, array * area_of(&self->comm.base.arenas.layout), at);
}

/* z, or the published mean. */
static void *model_of(const struct dpb_averaging *self, uint64_t at)
{
    return in_inbox(self, 0, self->model_at, at);
}

/* The y of a worker's place. */
static void *place_of(const struct dpb_averaging *self, uint32_t rank, uint64_t at)
{
    return in_inbox(self, first_of(&self->rule, rank), self->place_at, at);
}

/* d. */
static void *velocity_of(const struct dpb_averaging *self, uint64_t at)
{
    return in_inbox(self, self->across ? self->comm.base.args.rank : 0, self->velocity_at, at);
}

/* Whether this rank keeps d, or a part of it. */
static bool has_velocity(const struct dpb_averaging *self)
{
    return keeps_velocity(&self->rule) && (self->comm.base.args.rank == 0 || self->across);
}

/* Whether meetings exchange differences (difference.h). */
static bool is_coded(const struct dpb_averaging *self)
{
    return self->comm.base.args.codec != NULL;
}

/* With `meet` or a codec: the weights after the meeting before, and behind them the velocity of
 * `meet`. Without a codec elements outside of this rank's slices are 0, so that the books count
 * each once. */
static void *start_of(const struct dpb_averaging *self, uint64_t at)
{
    return in_inbox(self, self->comm.base.args.rank, self->start_at, at);
}

static void *outer_velocity_of(const struct dpb_averaging *self, uint64_t at)
{
    return (char *)start_of(self, at) + area_of(&self->comm.base.arenas.layout);
}

/* An array of the optimizer's state from arena element `at` on, in the memory of the weights. */
static void *state_of(const struct dpb_averaging *self, uint32_t array, uint64_t at)
{
    return host->optimizer->state(self->comm.base.arenas.optimizer, at, array);
}

/* ---- work ---------------------------------------------------------------------------------- */

/* Work for the lane of `flight`. A failure is kept in comm.status. */
struct work {
    struct dpb_averaging *self;
    uint32_t flight;
    uint64_t n; /* elements */
};

static dpb_dtype type_of(const struct work *work)
{
    return work->self->comm.base.arenas.layout.weight_type;
}

static struct dpb_queue *queue_of(const struct work *work)
{
    return work->self->comm.flights[work->flight].lane->queue;
}

static bool is_near(const struct dpb_averaging *self, uint32_t owner)
{
    return self->comm.in_place || owner == self->comm.base.args.rank;
}

static void count(const struct work *work, uint32_t owner)
{
    if (owner != work->self->comm.base.args.rank)
        host->count_bytes(bytes_of(work->self, work->n));
}

/* `from` lies in the memory of worker `owner`. */
static void copy(const struct work *work, void *to, const void *from, uint32_t owner)
{
    struct dpb_device_strategy *comm = &work->self->comm;
    if (comm->status == DPB_OK)
        dpb_device_keep(comm,
                        comm->ops->copy(queue_of(work), to, from, bytes_of(work->self, work->n)));
    count(work, owner);
}

static void axpby(const struct work *work, double a, const void *x, double b, void *y)
{
    struct dpb_device_strategy *comm = &work->self->comm;
    if (comm->status == DPB_OK)
        dpb_device_keep(comm, comm->ops->axpby(queue_of(work), type_of(work), a, x, b, y, work->n));
}

void dpb_averaging_axpby(const struct dpb_averaging_meeting *meeting, double a, const void *x,
                         double b, void *y)
{
    axpby(meeting->work, a, x, b, y);
}

static void sum(const struct work *work, void *to, const void *const *sources, uint32_t k)
{
    struct dpb_device_strategy *comm = &work->self->comm;
    if (comm->status == DPB_OK)
        dpb_device_keep(comm,
                        comm->ops->sum(queue_of(work), type_of(work), to, sources, k, work->n));
}

/* Returns memory for a result whose destination is `far`: `far` itself, or the slot. */
static void *room(const struct work *work, void *far, uint32_t owner, uint32_t slot)
{
    const struct dpb_averaging *self = work->self;
    return is_near(self, owner) ? far
                                : (char *)self->comm.base.arenas.inbox + self->staging_at +
                                      slot * dpb_strategy_lines(bytes_of(self, work->n));
}

/* Returns memory to work on `far`, in worker `owner`'s memory: `far` itself; or, on another
 * worker's device, a copy in the slot, which `put` copies back. */
static void *get(const struct work *work, void *far, uint32_t owner, uint32_t slot)
{
    void *near = room(work, far, owner, slot);
    if (near == far)
        count(work, owner);
    else
        copy(work, near, far, owner);
    return near;
}

static void put(const struct work *work, void *far, uint32_t owner, const void *near)
{
    if (near == far)
        count(work, owner);
    else
        copy(work, far, near, owner);
}

static void clear(const struct work *work, void *to)
{
    struct dpb_device_strategy *comm = &work->self->comm;
    if (comm->status == DPB_OK)
        dpb_device_keep(comm, comm->ops->clear(queue_of(work), to, bytes_of(work->self, work->n)));
}

/* ---- steps --------------------------------------------------------------------------------- */

static bool is_alone(const struct dpb_averaging *self)
{
    return self->peers.n == 1 && self->peers.first == self->comm.base.args.rank;
}

/* The ranks of a meeting, in their order: all, or this one and its partner. */
static uint32_t list_group(const struct dpb_averaging *self, uint32_t *ranks, uint32_t *place)
{
    const uint32_t rank = self->comm.base.args.rank, partner = self->peers.first;
    uint32_t n = 0;
    if (self->peers.n > 1 || is_alone(self))
        for (; n < self->peers.n; n++)
            ranks[n] = self->peers.first + n;
    else
        for (; n < 2; n++)
            ranks[n] = (n == 0) == (rank < partner) ? rank : partner;
    for (*place = 0; ranks[*place] != rank; ++*place)
        ;
    return n;
}

static struct dpb_rank_set group_of(const struct dpb_averaging *self)
{
    return self->meets ? self->peers : dpb_strategy_self(&self->comm.base);
}

/* Arrays of the optimizer's state that this step averages. */
static uint32_t averaged_states(const struct dpb_averaging *self)
{
    return self->meets && self->rule.average_state ? self->comm.base.args.optimizer_states : 0;
}

/* Elements of the bucket to work on next: on a device all of them. */
static struct dpb_piece next_piece(const struct dpb_averaging *self, uint64_t bucket,
                                   uint64_t length, uint64_t at)
{
    const struct dpb_strategy *base = &self->comm.base;
    if (self->comm.in_place)
        return dpb_strategy_piece(base, bucket, length, at, base->arenas.layout.weight_type);
    return (struct dpb_piece){bucket * base->arenas.bucket_elements + at, length - at};
}

static dpb_status wait_for(struct dpb_averaging *self, enum dpb_signal_kind kind,
                           struct dpb_rank_set ranks, uint64_t bucket, const char *purpose)
{
    const uint32_t missing = dpb_signals_missing(&self->comm.base.signals, kind, ranks, bucket);
    return dpb_device_wait_signal(&self->comm, kind, missing, bucket,
                                  self->comm.base.arenas.layout.weight_type, purpose);
}

/* ---- stage: update the own weights --------------------------------------------------------- */

static bool update_due(void *strategy, uint64_t bucket)
{
    return dpb_device_has_room(strategy, DPB_DEVICE_UPDATES) &&
           dpb_strategy_own_ready(strategy, bucket);
}

/* The step's gradients are those of the replica before. Nobody reads d before all have pushed. */
static void begin_anew(const struct work *work, struct dpb_piece piece)
{
    const struct dpb_averaging *self = work->self;
    const uint32_t rank = self->comm.base.args.rank;
    copy(work, dpb_strategy_weights(&self->comm.base, rank, piece.begin),
         model_of(self, piece.begin), 0);
    if (has_velocity(self))
        clear(work, velocity_of(self, piece.begin));
    if (self->rule.learners > 0 && first_of(&self->rule, rank) == rank)
        copy(work, place_of(self, rank, piece.begin), model_of(self, piece.begin), 0);
}

/* c, of the weights before their update. Where replicas begin anew there is nothing between them
 * and their centre. */
static void measure(const struct work *work, struct dpb_piece piece)
{
    const struct dpb_averaging *self = work->self;
    const uint32_t rank = self->comm.base.args.rank;
    void *c = own_of(self, rank, piece.begin);
    if (self->restarts) {
        clear(work, c);
        return;
    }
    if (self->rule.learners > 0 && !self->anew)
        copy(work, c, place_of(self, rank, piece.begin), first_of(&self->rule, rank));
    else
        copy(work, c, model_of(self, piece.begin), 0);
    axpby(work, self->rule.alpha, dpb_strategy_weights(&self->comm.base, rank, piece.begin),
          -self->rule.alpha, c);
}

static void update_piece(struct dpb_averaging *self, uint64_t bucket, struct dpb_piece piece)
{
    const struct dpb_strategy *base = &self->comm.base;
    const struct work work = {self, DPB_DEVICE_UPDATES, piece.n};
    const uint32_t rank = base->args.rank;
    void *weights = dpb_strategy_weights(base, rank, piece.begin);
    if (self->restarts)
        begin_anew(&work, piece);
    if (self->meets && self->rule.centre)
        measure(&work, piece);
    if (self->comm.status == DPB_OK)
        dpb_device_keep(&self->comm,
                        dpb_strategy_enqueue_update(base, queue_of(&work), bucket, piece,
                                                    dpb_strategy_own_gradients(base, piece.begin)));
    if (self->meets && self->rule.centre)
        axpby(&work, -1.0, own_of(self, rank, piece.begin), 1.0, weights);
    for (uint32_t i = 0; i < averaged_states(self); i++)
        copy(&work, shown_state(self, rank, i, piece.begin), state_of(self, i, piece.begin), rank);
}

static void update_work(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_averaging *self = strategy;
    do {
        struct dpb_piece piece = next_piece(self, bucket, turn->length, turn->at);
        if (self->comm.base.args.whole)
            piece.n = turn->length;
        update_piece(self, bucket, piece);
        turn->at += piece.n;
    } while (turn->at < turn->length && host->now_ns() < turn->until_ns);
    if (turn->at == turn->length)
        dpb_device_begun(&self->comm, DPB_DEVICE_UPDATES, bucket, false);
}

/* ---- stage: the own slice of a meeting ----------------------------------------------------- */

static bool meet_due(void *strategy, uint64_t bucket)
{
    const struct dpb_averaging *self = strategy;
    return dpb_device_has_room(strategy, MEETS) &&
           dpb_signals_reached(&self->comm.base.signals, DPB_SIGNAL_PUSHED, group_of(self), bucket);
}

static dpb_status meet_wait(void *strategy, uint64_t bucket)
{
    return wait_for(strategy, DPB_SIGNAL_PUSHED, group_of(strategy), bucket, "the peer's update");
}

/* The new weights of all replicas from their mean. */
static void meet_own(const struct work *work, uint64_t at, void *mean)
{
    const struct dpb_averaging *self = work->self;
    const struct dpb_averaging_meeting meeting = {.rule = &self->rule,
                                                  .weights = mean,
                                                  .start = start_of(self, at),
                                                  .velocity = outer_velocity_of(self, at),
                                                  .work = work};
    if (self->rule.meet)
        self->rule.meet(&meeting);
    copy(work, start_of(self, at), mean, self->comm.base.args.rank);
}

static void move_own(struct dpb_strategy *strategy, struct dpb_piece piece)
{
    struct dpb_averaging *self = (struct dpb_averaging *)(void *)strategy;
    const struct work work = {self, MEETS, piece.n};
    meet_own(&work, piece.begin, dpb_strategy_own_weights(strategy, piece.begin));
}

/* The mean of n workers' arrays into each of them. `at`: their place in the weights, if they are
 * weights with a `meet`. */
static void take_mean(const struct work *work, void *const *arrays, const uint32_t *ranks,
                      uint32_t n, uint32_t place, const uint64_t *at)
{
    const void *sources[DPB_STRATEGY_WORKERS] = {NULL};
    void *own = arrays[place];
    for (uint32_t i = 0; i < n; i++)
        sources[i] = get(work, arrays[i], ranks[i], i);
    sum(work, own, sources, n);
    axpby(work, 1.0 / n, own, 0.0, own);
    if (at)
        meet_own(work, *at, own);
    for (uint32_t i = 0; i < n; i++)
        if (i != place)
            copy(work, arrays[i], own, ranks[i]);
}

static void meet_group(const struct work *work, struct dpb_piece piece)
{
    const struct dpb_averaging *self = work->self;
    uint32_t ranks[DPB_STRATEGY_WORKERS], place;
    void *arrays[DPB_STRATEGY_WORKERS] = {NULL};
    const uint32_t n = list_group(self, ranks, &place);
    for (uint32_t i = 0; i < n; i++)
        arrays[i] = dpb_strategy_weights(&self->comm.base, ranks[i], piece.begin);
    take_mean(work, arrays, ranks, n, place, self->rule.meet ? &piece.begin : NULL);
    for (uint32_t array = 0; array < averaged_states(self); array++) {
        for (uint32_t i = 0; i < n; i++)
            arrays[i] = shown_state(self, ranks[i], array, piece.begin);
        take_mean(work, arrays, ranks, n, place, NULL);
    }
}

/* The places meet z once their learners have met y: both at once, with all of these weights, would
 * move y past both. */
static void move_places(const struct work *work, struct dpb_piece piece, void *z, void *d)
{
    const struct dpb_averaging *self = work->self;
    const uint32_t n = self->comm.base.args.n_workers, learners = self->rule.learners;
    const uint32_t n_places = n / learners;
    const double part = 1.0 / n_places;
    for (uint32_t place = 0, first = 0; place < n_places; place++, first += learners) {
        void *far = place_of(self, first, piece.begin);
        void *y = get(work, far, first, n + 2 + place);
        const void *sources[DPB_STRATEGY_WORKERS + 1] = {y};
        for (uint32_t i = 0; i < learners; i++)
            sources[i + 1] = get(work, own_of(self, first + i, piece.begin), first + i, first + i);
        sum(work, y, sources, learners + 1);
        axpby(work, part, y, 1.0, d);
        axpby(work, part, z, 1.0 - part, y);
        put(work, far, first, y);
    }
    axpby(work, -1.0, z, 1.0, d);
}

/* Without momentum of the centre, d is only the sum of all c: it goes to z at once. */
static void move_workers(const struct work *work, struct dpb_piece piece, void *d)
{
    const struct dpb_averaging *self = work->self;
    const uint32_t n = self->comm.base.args.n_workers;
    const void *sources[DPB_STRATEGY_WORKERS + 1] = {d};
    for (uint32_t rank = 0; rank < n; rank++)
        sources[rank + 1] = get(work, own_of(self, rank, piece.begin), rank, rank);
    sum(work, d, sources, n + 1);
}

static void move_centre(const struct work *work, struct dpb_piece piece)
{
    const struct dpb_averaging *self = work->self;
    const uint32_t n = self->comm.base.args.n_workers;
    const bool moves_on = keeps_velocity(&self->rule);
    void *far_z = model_of(self, piece.begin);
    void *far_d = velocity_of(self, piece.begin);
    void *z = get(work, far_z, 0, n);
    void *d = moves_on ? get(work, far_d, 0, n + 1) : z;
    if (moves_on)
        axpby(work, self->rule.centre_momentum, d, 0.0, d);
    if (self->rule.learners > 0)
        move_places(work, piece, z, d);
    else
        move_workers(work, piece, d);
    if (moves_on) {
        axpby(work, 1.0, d, 1.0, z);
        put(work, far_d, 0, d);
    }
    put(work, far_z, 0, z);
}

static void meet_slice(struct dpb_averaging *self, uint64_t bucket, struct dpb_stage_turn *turn)
{
    uint32_t ranks[DPB_STRATEGY_WORKERS], place;
    const uint32_t n = list_group(self, ranks, &place);
    const struct dpb_range slice = dpb_slice_of(turn->length, place, n);
    if (turn->at == 0)
        turn->at = slice.begin;
    while (turn->at < slice.end && host->now_ns() < turn->until_ns) {
        const int64_t began_ns = host->now_ns();
        const struct dpb_piece piece = next_piece(self, bucket, slice.end, turn->at);
        const struct work work = {self, MEETS, piece.n};
        if (self->rule.centre)
            move_centre(&work, piece);
        else
            meet_group(&work, piece);
        if (self->comm.in_place)
            host->span(bucket, DPB_PHASE_REDUCE, began_ns, host->now_ns());
        turn->at += piece.n;
    }
    if (turn->at >= slice.end)
        turn->at = turn->length;
}

static void meet_work(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_averaging *self = strategy;
    const bool any = self->meets && (self->rule.centre || self->rule.meet || !is_alone(self));
    if (dpb_across_is_far(self->across)) {
        dpb_across_join(self->across, bucket, turn);
        return;
    }
    if (any && turn->at == 0)
        dpb_signals_span_late(&self->comm.base.signals, DPB_SIGNAL_PUSHED, self->peers, bucket);
    if (any)
        meet_slice(self, bucket, turn);
    else
        turn->at = turn->length;
    if (turn->at == turn->length)
        dpb_device_begun(&self->comm, MEETS, bucket, !any);
}

/* ---- several machines: the rule on a piece (across.h) --------------------------------------- */

/* A worker's array of a channel; of a centre c, of the model the machine's. */
static void *channel_of(const struct dpb_averaging *self, uint32_t channel, uint32_t rank,
                        uint64_t at)
{
    if (channel == DPB_ACROSS_MODEL)
        return model_of(self, at);
    if (self->rule.centre)
        return own_of(self, rank, at);
    return channel == DPB_ACROSS_VALUES ? dpb_strategy_weights(&self->comm.base, rank, at)
                                        : shown_state(self, rank, channel - DPB_ACROSS_STATES, at);
}

/* As move_places, on this machine: the part is the sum of e + z / places over its places. */
static void gather_places(const struct work *work, struct dpb_piece piece, void *part_of_sum)
{
    const struct dpb_averaging *self = work->self;
    const uint32_t n = self->comm.base.args.n_workers, learners = self->rule.learners;
    const double part = (double)learners / self->job.n_workers;
    for (uint32_t first = 0; first < n; first += learners) {
        const void *sources[DPB_STRATEGY_WORKERS + 1] = {place_of(self, first, piece.begin)};
        for (uint32_t i = 0; i < learners; i++)
            sources[i + 1] = own_of(self, first + i, piece.begin);
        sum(work, place_of(self, first, piece.begin), sources, learners + 1);
    }
    clear(work, part_of_sum);
    for (uint32_t first = 0; first < n; first += learners) {
        void *y = place_of(self, first, piece.begin);
        axpby(work, part, y, 1.0, part_of_sum);
        axpby(work, part, model_of(self, piece.begin), 1.0 - part, y);
    }
}

static void gather_piece(void *strategy, uint32_t channel, struct dpb_piece piece)
{
    struct dpb_averaging *self = strategy;
    const struct work work = {self, MEETS, piece.n};
    const uint32_t rank = self->comm.base.args.rank, n = self->comm.base.args.n_workers;
    const bool model = channel == DPB_ACROSS_MODEL;
    const void *sources[DPB_STRATEGY_WORKERS];
    void *part = channel_of(self, channel, rank, piece.begin);
    for (uint32_t i = 0; i < n; i++) {
        count(&work, i);
        sources[i] = model ? dpb_strategy_weights(&self->comm.base, i, piece.begin)
                           : channel_of(self, channel, i, piece.begin);
    }
    if (self->rule.learners > 0)
        gather_places(&work, piece, part);
    else
        sum(&work, part, sources, n);
}

/* The machine's z has the new bits behind it. */
static void join_centre(const struct work *work, struct dpb_piece piece, const void **sources,
                        uint32_t n)
{
    const struct dpb_averaging *self = work->self;
    const bool moves_on = keeps_velocity(&self->rule);
    void *z = model_of(self, piece.begin), *d = moves_on ? velocity_of(self, piece.begin) : z;
    if (moves_on)
        axpby(work, self->rule.centre_momentum, d, 0.0, d);
    sources[n] = d;
    sum(work, d, sources, n + 1);
    if (self->rule.learners > 0)
        axpby(work, -1.0, z, 1.0, d);
    if (moves_on)
        axpby(work, 1.0, d, 1.0, z);
}

static void spread_piece(void *strategy, uint32_t channel, struct dpb_piece piece)
{
    struct dpb_averaging *self = strategy;
    const struct work work = {self, MEETS, piece.n};
    const struct dpb_rank_set group = self->peers;
    const uint32_t rank = self->comm.base.args.rank;
    const void *own = channel_of(self, channel, rank, piece.begin);
    for (uint32_t i = group.first; i < group.first + group.n && !self->rule.centre; i++)
        if (i != rank)
            copy(&work, channel_of(self, channel, i, piece.begin), own, i);
}

static void join_piece(void *strategy, uint32_t channel, struct dpb_piece piece,
                       const void *const *parts, uint32_t n_parts)
{
    struct dpb_averaging *self = strategy;
    const struct work work = {self, MEETS, piece.n};
    const bool model = channel == DPB_ACROSS_MODEL;
    void *own = channel_of(self, channel, self->comm.base.args.rank, piece.begin);
    const void *sources[DPB_STRATEGY_WORKERS + 1] = {own};
    for (uint32_t i = 0; i < n_parts; i++)
        sources[i + 1] = parts[i];
    if (self->rule.centre) {
        join_centre(&work, piece, sources, n_parts + 1);
        return;
    }
    sum(&work, own, sources, n_parts + 1);
    axpby(&work, self->rule.partner && !model ? 0.5 : 1.0 / self->job.n_workers, own, 0.0, own);
    if (self->rule.meet && channel == DPB_ACROSS_VALUES)
        meet_own(&work, piece.begin, own);
    if (!model)
        spread_piece(self, channel, piece);
}

static const struct dpb_across_rule across_rule = {gather_piece, join_piece, spread_piece};

/* ---- stage: all slices are there ----------------------------------------------------------- */

static uint32_t lead_of(const struct dpb_averaging_rule *rule, uint32_t n_workers)
{
    return (uint32_t)rule->period * (rule->partner ? n_workers : rule->late ? 2 : 1) - 1;
}

/* Partners, in the last bucket: the signals of the step that all must have updated before this rank
 * ends the step under way. False: there is none. */
static bool signals_before(const struct dpb_averaging *self, uint64_t bucket,
                           struct dpb_rank_signals *before)
{
    const struct dpb_strategy *base = &self->comm.base;
    *before = base->signals;
    before->exchange -= lead_of(&self->rule, self->job.n_workers);
    return self->rule.partner && dpb_strategy_is_last(base, bucket);
}

static bool take_due(void *strategy, uint64_t bucket)
{
    const struct dpb_strategy *base = strategy;
    struct dpb_rank_signals before;
    return dpb_device_has_room(strategy, TAKES) &&
           dpb_signals_reached(&base->signals, DPB_SIGNAL_REDUCED, group_of(strategy), bucket) &&
           (!signals_before(strategy, bucket, &before) ||
            dpb_signals_reached(&before, DPB_SIGNAL_PUSHED, dpb_strategy_workers(base), bucket));
}

static dpb_status take_wait(void *strategy, uint64_t bucket)
{
    struct dpb_averaging *self = strategy;
    const struct dpb_strategy *base = strategy;
    const struct dpb_rank_set workers = dpb_strategy_workers(base);
    static const char purpose[] = "the peer's step";
    struct dpb_rank_signals before;
    if (!dpb_signals_reached(&base->signals, DPB_SIGNAL_REDUCED, group_of(self), bucket) ||
        !signals_before(self, bucket, &before))
        return wait_for(self, DPB_SIGNAL_REDUCED, group_of(self), bucket, "the peer's slice");
    const uint32_t missing = dpb_signals_missing(&before, DPB_SIGNAL_PUSHED, workers, bucket);
    if (missing == UINT32_MAX || self->comm.in_place)
        return dpb_signals_wait(&before, DPB_SIGNAL_PUSHED, workers, bucket, 0, 0, purpose);
    return dpb_device_wait(&self->comm, bucket, missing, base->arenas.layout.weight_type, purpose);
}

static void take_work(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_averaging *self = strategy;
    const struct dpb_strategy *base = strategy;
    const uint64_t begin = bucket * base->arenas.bucket_elements;
    const struct work work = {self, TAKES, turn->length};
    dpb_strategy_span_others(base, DPB_SIGNAL_REDUCED, DPB_SIGNAL_REDUCED, group_of(self), bucket);
    for (uint32_t i = 0; i < averaged_states(self); i++)
        copy(&work, state_of(self, i, begin), shown_state(self, base->args.rank, i, begin),
             base->args.rank);
    dpb_device_begun(&self->comm, TAKES, bucket, averaged_states(self) == 0);
    turn->at = turn->length;
}

static const struct dpb_stage stages[] = {{update_due, update_work, dpb_strategy_own_wait},
                                          {meet_due, meet_work, meet_wait},
                                          {take_due, take_work, take_wait}};

static const struct dpb_stage_flight met = {MEETS, DPB_PHASE_REDUCE, "its device to average"};
static const struct dpb_stage_flight taken = {TAKES, DPB_PHASE_UPDATE,
                                              "its device to copy the mean"};

static const struct dpb_stage_flight *const flights[] = {&dpb_device_updated, &met, &taken};

/* ---- stages on several machines ------------------------------------------------------------ */

static struct dpb_across *across_of(const void *strategy)
{
    return ((const struct dpb_averaging *)strategy)->across;
}

static dpb_status across_move(void *strategy, int64_t until_ns, bool *moved)
{
    return dpb_across_move(across_of(strategy), until_ns, moved);
}

static dpb_status across_update_wait(void *strategy, uint64_t bucket)
{
    return dpb_across_update_wait(across_of(strategy), bucket);
}

static dpb_status across_wait(void *strategy, uint64_t bucket)
{
    const struct dpb_averaging *self = strategy;
    return self->comm.status == DPB_OK ? dpb_across_wait(self->across, bucket) : self->comm.status;
}

static bool tell_due(void *strategy, uint64_t bucket)
{
    return dpb_across_tell_due(across_of(strategy), bucket);
}

static void tell(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    dpb_across_tell(across_of(strategy), bucket, turn);
}

static bool gather_due(void *strategy, uint64_t bucket)
{
    return dpb_across_gather_due(across_of(strategy), bucket);
}

static void gather(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    dpb_across_gather(across_of(strategy), bucket, turn);
}

static bool join_due(void *strategy, uint64_t bucket)
{
    const struct dpb_across *across = across_of(strategy);
    return dpb_across_is_far(across) ? dpb_across_join_due(across, bucket)
                                     : meet_due(strategy, bucket);
}

static bool spread_due(void *strategy, uint64_t bucket)
{
    return dpb_across_spread_due(across_of(strategy), bucket);
}

/* In place, so this raises REDUCED at once. */
static void spread(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    dpb_across_spread(across_of(strategy), bucket, turn);
    if (dpb_across_is_far(across_of(strategy)) && turn->at == turn->length)
        dpb_device_begun(strategy, MEETS, bucket, false);
}

static bool take_across_due(void *strategy, uint64_t bucket)
{
    return take_due(strategy, bucket) && dpb_across_take_due(across_of(strategy), bucket);
}

static const struct dpb_stage across_stages[] = {{update_due, update_work, across_update_wait},
                                                 {tell_due, tell, across_wait},
                                                 {gather_due, gather, across_wait},
                                                 {join_due, meet_work, across_wait},
                                                 {spread_due, spread, across_wait},
                                                 {take_across_due, take_work, across_wait}};

/* ---- contract ------------------------------------------------------------------------------ */

static bool takes_mean_of_all(const struct dpb_averaging_rule *rule)
{
    return !rule->centre && !rule->partner;
}

static uint32_t count_places(const struct dpb_averaging_rule *rule, uint32_t n_workers)
{
    return rule->learners > 0 ? n_workers / rule->learners : 0;
}

/* A meeting rounds a weight once for each worker, and twice for the factor and the difference; in
 * a place also three times for the centre of each place; with `meet` as often as that may. */
static struct dpb_contract contract_of(const struct dpb_averaging_rule *rule,
                                       const struct dpb_comm_args *args)
{
    const uint32_t n_workers = args->n_workers;
    const bool periodic = takes_mean_of_all(rule) && !rule->meet && !args->codec;
    const uint32_t period = (uint32_t)rule->period;
    return (struct dpb_contract){
        .consistency = periodic ? DPB_PERIODIC : DPB_AVERAGING,
        .parameter = period,
        .proof = periodic ? DPB_PROOF_SETTLES : DPB_PROOF_BOOKS,
        .settle_steps = periodic ? period - 1 : 0,
        .divisor = 1,
        .share = periodic ? 1.0 / n_workers : 1.0,
        .roundings = periodic ? n_workers + 2 * period
                              : n_workers + 4 + 3 * count_places(rule, n_workers) +
                                    (rule->meet ? 6 : 0) + dpb_difference_roundings(args),
        .lead = lead_of(rule, n_workers),
        .replicas_equal = periodic};
}

/* ---- hooks: life --------------------------------------------------------------------------- */

/* Measured without gradients: by a larger alpha the distance of centre and replicas grows. With
 * momentum of z the centre of a place bears less than z. */
static dpb_status check_rule(const struct dpb_comm_args *args,
                             const struct dpb_averaging_rule *rule)
{
    const double most = rule->learners > 0 ? 1.0 / rule->learners : 2.0 / (1.0 + args->n_workers);
    if (rule->period == 0)
        return host->fail(DPB_FAILED,
                          "struct dpb_averaging_rule: a period has at least 1 step, not 0");
    if ((rule->meet || args->codec) && (rule->centre || rule->partner))
        return host->fail(DPB_FAILED,
                          "struct dpb_averaging_rule: `meet` and codecs are for the mean of all "
                          "workers, without a centre and without partners");
    if ((rule->late || args->codec) && args->n_machines > 1)
        return host->fail(DPB_USAGE,
                          "%s: the differences of a meeting are exchanged in the memory of one "
                          "machine; leave it out, or take one machine",
                          rule->late ? "comm.outer_late" : "comm.codec");
    if (rule->late && !rule->meet)
        return host->fail(DPB_FAILED,
                          "struct dpb_averaging_rule: `late` is for a rule with `meet`");
    if (rule->learners > 0 && count_places(rule, args->n_workers) < 2)
        return host->fail(DPB_USAGE,
                          "comm.local_centers = yes with one place: its centre has no others to "
                          "meet; take run.workers = 2 or more, or leave comm.local_centers out");
    if (rule->centre && rule->alpha > most * (1.0 + 1e-9))
        return host->fail(DPB_USAGE,
                          "comm.alpha = %g with %u %s: centre and replicas move past each "
                          "other further each time; it should be at most %g",
                          rule->alpha, rule->learners > 0 ? rule->learners : args->n_workers,
                          rule->learners > 0 ? "learners in a place" : "workers", most);
    return dpb_difference_check(host, args, rule->late, rule->average_state);
}

/* Differences, and what goes to other machines, are in the host's memory. */
static dpb_status averaging_needs(const void *options, struct dpb_comm_needs *needs)
{
    const struct dpb_comm_args alone = {
        .n_workers = 1, .learners = 1, .machines = (const uint32_t[]){0}, .n_machines = 1};
    needs->codec_on_host = needs->on_one_machine = true;
    return rule_of(options, &alone).late ? DPB_OK : dpb_device_strategy_needs(options, needs);
}

static dpb_status averaging_contract(const void *options, const struct dpb_comm_args *args,
                                     struct dpb_contract *contract)
{
    const struct dpb_averaging_rule rule = rule_of(options, args);
    DPB_TRY(check_rule(args, &rule));
    const struct dpb_comm_args its = dpb_difference_args(args, rule.late);
    *contract = contract_of(&rule, &its);
    return args->n_machines > 1
               ? dpb_tcp_check_port(host, dpb_tcp_options_of(plugin, options), args->n_workers - 1)
               : DPB_OK;
}

static struct dpb_across_args across_args(const struct dpb_averaging_rule *rule,
                                          const struct dpb_comm_args *job)
{
    return (struct dpb_across_args){.job = *job,
                                    .rule = &across_rule,
                                    .n_channels =
                                        1 + (rule->average_state ? job->optimizer_states : 0),
                                    .pairs = rule->partner != NULL,
                                    .model = !rule->centre,
                                    .lead = lead_of(rule, job->n_workers)};
}

static void averaging_close(void *comm)
{
    if (comm)
        dpb_across_close(((struct dpb_averaging *)comm)->across);
    dpb_device_strategy_close(comm);
}

static dpb_status averaging_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    const struct dpb_averaging_rule rule = rule_of(options, args);
    const struct dpb_comm_args within = dpb_across_within(args);
    DPB_TRY(check_rule(args, &rule));
    const struct dpb_comm_args its = dpb_difference_args(&within, rule.late);
    DPB_TRY(dpb_device_strategy_open(host, &its, sizeof(struct dpb_averaging), comm));
    struct dpb_averaging *made = *comm;
    made->rule = rule;
    made->job = *args;
    dpb_status status = dpb_difference_open(&made->comm.base, rule.late);
    if (status == DPB_OK && args->n_machines > 1) {
        const struct dpb_across_args across = across_args(&rule, args);
        status = dpb_across_open(&made->comm.base, &across, dpb_tcp_options_of(plugin, options),
                                 &made->across);
    } else if (status == DPB_OK && !made->comm.in_place &&
               args->n_workers + rule.centre > DPB_SUM_SOURCES) {
        status = host->fail(DPB_UNSUPPORTED,
                            "%u workers: a device adds up %d arrays, here of %d workers",
                            args->n_workers, DPB_SUM_SOURCES, DPB_SUM_SOURCES - 1);
    }
    if (status == DPB_OK)
        return DPB_OK;
    dpb_device_strategy_close(made);
    *comm = NULL;
    return status;
}

/* Arrays as large as the weights with which an inbox begins: c, or the optimizer's state. */
static uint32_t first_areas(const struct dpb_averaging_rule *rule, const struct dpb_comm_args *args)
{
    return rule->centre ? 1 : rule->average_state ? args->optimizer_states : 0;
}

/* `args`: of the machine's workers. */
static uint64_t inbox_bytes(const struct dpb_averaging_rule *rule, const struct dpb_comm_args *args,
                            const struct dpb_layout *layout)
{
    const uint32_t rank = args->rank;
    const uint32_t of_place = rule->learners > 0 && first_of(rule, rank) == rank;
    const bool velocity = keeps_velocity(rule) && (rank == 0 || args->n_machines > 1);
    const uint32_t n = first_areas(rule, args) + of_place + (rank == 0) + velocity +
                       dpb_difference_areas(args, rule->late, rule->meet != NULL);
    return n * area_of(layout);
}

/* Slots that a meeting of n workers takes. */
static uint32_t count_slots(const struct dpb_averaging_rule *rule, uint32_t n_workers)
{
    return n_workers + (rule->centre ? 2 : 1) +
           (rule->learners > 0 ? n_workers / rule->learners : 0);
}

/* On a device: a slice from each member of the largest meeting, and its result. A worker without
 * others has nothing to fetch. */
static uint64_t staging_bytes(const struct dpb_averaging_rule *rule, uint32_t n_workers,
                              const struct dpb_layout *layout, uint64_t bucket_elements)
{
    const uint64_t longest = dpb_strategy_longest_bucket(layout, bucket_elements);
    const uint64_t slice = (longest + n_workers - 1) / n_workers;
    return n_workers == 1 ? 0
                          : count_slots(rule, n_workers) *
                                dpb_strategy_lines(slice * dpb_dtype_size(layout->weight_type));
}

static void averaging_memory(const void *options, const struct dpb_comm_args *args,
                             const struct dpb_layout *layout, uint64_t bucket_elements,
                             struct dpb_comm_memory *memory)
{
    const struct dpb_averaging_rule rule = rule_of(options, args);
    const struct dpb_comm_args within = dpb_across_within(args);
    const struct dpb_comm_args its = dpb_difference_args(&within, rule.late);
    const struct dpb_across_args across = across_args(&rule, args);
    memory->host_bytes = dpb_across_bytes(&across, layout, bucket_elements);
    memory->beside_bytes = inbox_bytes(&rule, &its, layout);
    memory->device_bytes = staging_bytes(&rule, args->n_workers, layout, bucket_elements);
    dpb_coded_memory(&its, layout, bucket_elements, DPB_CODED_SHARED, memory);
}

static dpb_status averaging_plan(void *comm, const struct dpb_layout *layout,
                                 struct dpb_comm_plan *want)
{
    struct dpb_averaging *self = comm;
    const struct dpb_comm_args *args = &self->comm.base.args;
    const uint64_t area = area_of(layout);
    if (args->whole && want->bucket_elements < layout->n_elements)
        want->bucket_elements = layout->n_elements; /* nobody reads weights before all are new */
    DPB_TRY(dpb_strategy_plan_replica(comm, layout, DPB_MEMORY_SHARED, want));
    want->weights = DPB_MEMORY_SHARED;
    want->gradients = DPB_MEMORY_PRIVATE;
    const struct dpb_comm_args its = dpb_difference_args(&self->job, self->rule.late);
    want->contract = contract_of(&self->rule, &its);
    const uint64_t n_buckets = dpb_strategy_count_buckets(layout, want->bucket_elements);
    if ((want->contract.lead + UINT64_C(2)) * n_buckets > INT32_MAX)
        return host->fail(DPB_USAGE,
                          "comm.period = %llu with %llu buckets: workers that are up to %u steps "
                          "apart count more than 2^31 buckets; take a larger comm.bucket",
                          (unsigned long long)self->rule.period, (unsigned long long)n_buckets,
                          want->contract.lead);
    self->fence_at = dpb_strategy_lines(want->scratch_bytes);
    want->scratch_bytes = self->fence_at + sizeof(struct dpb_flag);
    self->place_at = first_areas(&self->rule, args) * area;
    self->model_at = self->place_at + (self->rule.learners > 0 ? area : 0);
    self->velocity_at = self->model_at + area;
    self->staging_at = inbox_bytes(&self->rule, args, layout);
    if (self->across && keeps_velocity(&self->rule)) /* the last of a centre's */
        self->velocity_at = self->staging_at - area;
    self->start_at = self->staging_at -
                     dpb_difference_areas(args, self->rule.late, self->rule.meet != NULL) * area;
    want->inbox_bytes = self->staging_at;
    if (!self->comm.in_place)
        want->inbox_bytes +=
            staging_bytes(&self->rule, args->n_workers, layout, want->bucket_elements);
    want->inbox = want->inbox_bytes > 0 ? DPB_MEMORY_SHARED : DPB_MEMORY_NONE;
    return is_coded(self) ? dpb_difference_plan(comm, layout, want) : DPB_OK;
}

/* Channels without memory are not of this rule. */
static dpb_status connect_across(struct dpb_averaging *self)
{
    struct dpb_across_channel channels[DPB_ACROSS_CHANNELS] = {{NULL, NULL}};
    const uint32_t rank = self->comm.base.args.rank;
    void *model = model_of(self, 0);
    const uint32_t n_states = self->rule.average_state ? self->comm.base.args.optimizer_states : 0;
    for (uint32_t i = 0; i < DPB_ACROSS_STATES + n_states; i++)
        channels[i].from = channels[i].to = channel_of(self, i, rank, 0);
    if (self->rule.centre)
        channels[DPB_ACROSS_VALUES].to = model;
    else
        channels[DPB_ACROSS_MODEL] = (struct dpb_across_channel){model, model};
    self->comm.base.pipeline.move = across_move;
    return dpb_across_connect(self->across, channels);
}

static dpb_status averaging_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct dpb_averaging *self = comm;
    struct dpb_device_strategy *device = &self->comm;
    DPB_TRY(dpb_device_lanes_open(device));
    DPB_TRY(dpb_device_flight_open(device, DPB_DEVICE_UPDATES, &device->out, DPB_SIGNAL_PUSHED));
    DPB_TRY(dpb_device_flight_open(device, MEETS, &device->here, DPB_SIGNAL_REDUCED));
    DPB_TRY(dpb_device_flight_open(device, TAKES, &device->back, DPB_N_SIGNALS));
    if (is_coded(self))
        return dpb_difference_bind(comm, arenas, self->start_at, move_own);
    if (self->across) {
        const struct dpb_arenas view = dpb_across_view(self->across, arenas);
        DPB_TRY(dpb_strategy_bind(&device->base, &view, DPB_STRATEGY_STAGES(across_stages)));
        return connect_across(self);
    }
    DPB_TRY(dpb_strategy_bind(&device->base, arenas, DPB_STRATEGY_STAGES(stages)));
    device->base.pipeline.flights = flights;
    device->base.pipeline.flight_ops = &dpb_device_flight_ops;
    dpb_device_report_ways(device);
    return DPB_OK;
}

/* Blocks until all work in the flight's queue is done, or has failed. */
static dpb_status drain(struct dpb_averaging *self, uint32_t flight)
{
    dpb_device_keep(&self->comm, self->comm.ops->drain(self->comm.flights[flight].lane->queue));
    return self->comm.status;
}

/* Elements of the bucket that this rank averages, from *at on. */
static uint64_t own_slice(const struct dpb_averaging *self, uint64_t bucket, uint64_t *at)
{
    const struct dpb_strategy *base = &self->comm.base;
    const struct dpb_range slice = dpb_slice_of(dpb_pipeline_bucket_length(&base->pipeline, bucket),
                                                self->job.rank, self->job.n_workers);
    *at = bucket * base->arenas.bucket_elements + slice.begin;
    return slice.end - slice.begin;
}

/* The first meeting starts from these weights, at rest. */
static void load_start(struct dpb_averaging *self)
{
    const struct dpb_strategy *base = &self->comm.base;
    const struct work all = {self, MEETS, base->arenas.layout.n_elements};
    if (self->rule.meet)
        clear(&all, outer_velocity_of(self, 0));
    if (is_coded(self)) {
        copy(&all, start_of(self, 0), base->arenas.weights, base->args.rank);
        return;
    }
    clear(&all, start_of(self, 0));
    for (uint64_t bucket = 0; bucket < base->arenas.n_buckets; bucket++) {
        uint64_t at;
        const struct work work = {self, MEETS, own_slice(self, bucket, &at)};
        copy(&work, start_of(self, at), dpb_strategy_weights(base, base->args.rank, at),
             base->args.rank);
    }
}

/* The centre begins at rest where all replicas do. */
static dpb_status averaging_load(void *comm)
{
    struct dpb_averaging *self = comm;
    const struct dpb_strategy *base = comm;
    const struct work all = {self, MEETS, base->arenas.layout.n_elements};
    const uint32_t rank = base->args.rank;
    self->steps = self->rate = 0;
    self->meets = self->anew = false;
    if (self->rule.centre && rank == 0)
        copy(&all, model_of(self, 0), base->arenas.weights, rank);
    if (has_velocity(self))
        clear(&all, velocity_of(self, 0));
    if (self->rule.learners > 0 && first_of(&self->rule, rank) == rank)
        copy(&all, place_of(self, rank, 0), base->arenas.weights, rank);
    if (self->rule.meet || is_coded(self))
        load_start(self);
    DPB_TRY(dpb_strategy_load(comm));
    dpb_difference_load(comm);
    return drain(self, MEETS);
}

/* ---- hooks: step and model ----------------------------------------------------------------- */

/* Both partners average a slice of both workers' weights: a third worker's would be a race. */
static dpb_status choose_partner(struct dpb_averaging *self, uint64_t round)
{
    struct dpb_averaging other = *self;
    const uint32_t rank = self->job.rank, n = self->job.n_workers;
    const uint32_t partner = self->rule.partner(self, round);
    other.job.rank = partner;
    if (partner >= n || self->rule.partner(&other, round) != rank)
        return host->fail(
            DPB_FAILED,
            "struct dpb_averaging_rule: in round %llu the partner of rank %u is %u, whose "
            "partner is another one; partners name each other, or themselves",
            (unsigned long long)round, rank, partner);
    const bool here = self->job.machines[partner] == self->job.machines[rank];
    self->peers = (struct dpb_rank_set){dpb_across_local(&self->job, here ? partner : rank), 1};
    if (self->across)
        dpb_across_begin(self->across, self->peers, !here, partner, 1 + averaged_states(self));
    return DPB_OK;
}

static dpb_status averaging_begin(void *comm, const struct dpb_step *step)
{
    struct dpb_averaging *self = comm;
    const double most = 0x1p53; /* an fp64 counts up to this */
    if (!(self->steps >= 0 && self->steps < most) || self->steps != (double)(uint64_t)self->steps)
        return host->fail(DPB_FAILED,
                          "the checkpoint's count of steps since the start is %g: it is damaged",
                          self->steps);
    const uint64_t period = self->rule.period, n = (uint64_t)++self->steps;
    self->anew = self->anew && !self->meets;
    self->meets = n % period == 0;
    self->restarts = self->rule.restart > 0 && self->rate > 0 &&
                     step->learning_rate <= self->rule.restart * self->rate;
    self->rate = step->learning_rate;
    self->anew = self->anew || self->restarts;
    self->peers = dpb_strategy_workers(&self->comm.base);
    if (self->across)
        dpb_across_begin(self->across, group_of(self), self->meets && !self->rule.partner,
                         UINT32_MAX, 1 + averaged_states(self));
    if (self->meets && self->rule.partner)
        DPB_TRY(choose_partner(self, n / period - 1));
    dpb_difference_begin(comm, self->steps, self->meets);
    DPB_TRY(dpb_device_strategy_begin(comm, step));
    self->of_step = self->comm.base.signals;
    return DPB_OK;
}

static dpb_status averaging_ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    (void)event; /* host gradients are final when they are announced */
    dpb_signals_raise(&((struct dpb_averaging *)comm)->of_step, DPB_SIGNAL_READY, bucket);
    return DPB_OK;
}

/* Blocks until all workers have reached the same fence. */
static dpb_status pass_fence(struct dpb_averaging *self)
{
    const struct dpb_strategy *base = &self->comm.base;
    host->flag->set(fence_of(self, base->args.rank), ++self->fences);
    for (uint32_t rank = 0; rank < base->args.n_workers; rank++) {
        const struct dpb_wait what = {.step = base->step.step,
                                      .bucket = UINT64_MAX,
                                      .peer = dpb_signals_rank(&base->signals, rank),
                                      .purpose = "the peer's part of the mean model"};
        host->note("wait_peer", what.bucket, what.peer);
        DPB_TRY(host->flag->wait(fence_of(self, rank), self->fences, &what));
    }
    host->note("exchange", UINT64_MAX, UINT32_MAX); /* it waits for no peer any more */
    return DPB_OK;
}

/* This worker averages its slice of each bucket. */
static void take_means(struct dpb_averaging *self)
{
    const struct dpb_strategy *base = &self->comm.base;
    const uint32_t n = base->args.n_workers;
    const void *sources[DPB_STRATEGY_WORKERS];
    for (uint64_t bucket = 0; bucket < base->arenas.n_buckets; bucket++) {
        uint64_t at;
        const struct work work = {self, MEETS, own_slice(self, bucket, &at)};
        void *mean = room(&work, model_of(self, at), 0, n);
        for (uint32_t rank = 0; rank < n; rank++)
            sources[rank] = get(&work, dpb_strategy_weights(base, rank, at), rank, rank);
        sum(&work, mean, sources, n);
        axpby(&work, 1.0 / n, mean, 0.0, mean);
        put(&work, model_of(self, at), 0, mean);
    }
}

static dpb_status publish_mean(struct dpb_averaging *self)
{
    DPB_TRY(pass_fence(self));
    if (self->across)
        DPB_TRY(dpb_across_publish(self->across));
    else
        take_means(self);
    DPB_TRY(drain(self, MEETS));
    return pass_fence(self);
}

/* Whether all replicas hold the same weights, as they do where a mean of all was the last step. */
static bool are_equal(const struct dpb_averaging *self)
{
    return self->job.n_workers == 1 || self->steps == 0 ||
           (takes_mean_of_all(&self->rule) && !self->rule.late &&
            (uint64_t)self->steps % self->rule.period == 0);
}

static dpb_status averaging_publish(void *comm, struct dpb_view *view)
{
    struct dpb_averaging *self = comm;
    DPB_TRY(dpb_difference_finish(comm));
    if (!self->rule.centre && are_equal(self))
        return dpb_strategy_publish(comm, view);
    if (!self->rule.centre)
        DPB_TRY(publish_mean(self));
    view->weights = model_of(self, 0);
    return DPB_OK;
}

/* An array that counts nothing shows no meeting either. */
static void add_book(struct dpb_books *books, const void *array, dpb_dtype type, double coefficient)
{
    if (coefficient < 0 || coefficient > 0)
        books->entries[books->n++] = (struct dpb_book){array, type, coefficient, false};
}

/* z(t + 1) - momentum z(t) moves by the sum of all c alone, and is (1 - momentum) z + momentum
 * d. */
static dpb_status averaging_books(void *comm, struct dpb_books *books)
{
    const struct dpb_averaging *self = comm;
    const struct dpb_averaging_rule *rule = &self->rule;
    const struct dpb_arenas *arenas = &self->comm.base.arenas;
    const dpb_dtype type = arenas->layout.weight_type;
    const uint32_t rank = self->comm.base.args.rank;
    const double part = is_coded(self) ? 1.0 / self->comm.base.args.n_workers : 1.0;
    add_book(books, arenas->weights, type, 1.0);
    if (rule->learners > 0 && first_of(rule, rank) == rank)
        add_book(books, place_of(self, rank, 0), type, 1.0);
    if (rule->meet) {
        add_book(books, start_of(self, 0), type, part * rule->start_coefficient);
        add_book(books, outer_velocity_of(self, 0), type, part * rule->velocity_coefficient);
    }
    dpb_difference_books(comm, books);
    if (rule->centre && self->job.rank == 0)
        add_book(books, model_of(self, 0), type, 1.0 - rule->centre_momentum);
    if (rule->centre && (rank == 0 || self->across))
        add_book(books, velocity_of(self, 0), type, rule->centre_momentum);
    return DPB_OK;
}

/* z is the published model, and `load` takes it from there. Each worker names the centre of its
 * place. */
static dpb_status averaging_state(void *comm, struct dpb_saved *saved)
{
    struct dpb_averaging *self = comm;
    const struct dpb_arenas *arenas = &self->comm.base.arenas;
    const dpb_dtype type = arenas->layout.weight_type;
    const uint64_t n = arenas->layout.n_elements;
    static const char *const states[] = {"optimizer", "optimizer_second"};
    saved->arrays[saved->n++] = (struct dpb_saved_array){"steps", DPB_FP64, true, 1, &self->steps};
    saved->arrays[saved->n++] =
        (struct dpb_saved_array){"weights", type, false, n, arenas->weights};
    for (uint32_t i = 0; i < self->comm.base.args.optimizer_states; i++)
        saved->arrays[saved->n++] =
            (struct dpb_saved_array){states[i], type, false, n, state_of(self, i, 0)};
    if (self->rule.restart > 0)
        saved->arrays[saved->n++] =
            (struct dpb_saved_array){"rate", DPB_FP64, true, 1, &self->rate};
    if (self->rule.centre_momentum > 0 && self->across)
        saved->arrays[saved->n++] =
            (struct dpb_saved_array){"velocity_slices", type, false, n, velocity_of(self, 0)};
    else if (self->rule.centre_momentum > 0)
        saved->arrays[saved->n++] =
            (struct dpb_saved_array){"velocity", type, true, n,
                                     self->comm.base.args.rank == 0 ? velocity_of(self, 0) : NULL};
    if (self->rule.meet || is_coded(self))
        saved->arrays[saved->n++] =
            (struct dpb_saved_array){"start", type, is_coded(self), n, start_of(self, 0)};
    if (self->rule.meet)
        saved->arrays[saved->n++] = (struct dpb_saved_array){"outer_velocity", type, is_coded(self),
                                                             n, outer_velocity_of(self, 0)};
    if (self->rule.learners > 0) { /* other learners have other places */
        snprintf(self->place_name, sizeof self->place_name, "place_%u", self->rule.learners);
        saved->arrays[saved->n++] = (struct dpb_saved_array){
            self->place_name, type, false, n, place_of(self, self->comm.base.args.rank, 0)};
    }
    return dpb_difference_state(comm, saved);
}

const struct dpb_comm_ops dpb_averaging_ops = {.needs = averaging_needs,
                                               .memory = averaging_memory,
                                               .contract = averaging_contract,
                                               .open = averaging_open,
                                               .plan = averaging_plan,
                                               .bind = averaging_bind,
                                               .load = averaging_load,
                                               .begin = averaging_begin,
                                               .ready = averaging_ready,
                                               .progress = dpb_device_strategy_progress,
                                               .end = dpb_strategy_end,
                                               .publish = averaging_publish,
                                               .books = averaging_books,
                                               .state = averaging_state,
                                               .close = averaging_close};

const struct dpb_plugin *dpb_averaging_entry(const struct dpb_host *given,
                                             const struct dpb_plugin *own,
                                             dpb_averaging_rule_of rule)
{
    host = given;
    rule_of = rule;
    plugin = dpb_tcp_add_options(given, own);
    return plugin;
}
