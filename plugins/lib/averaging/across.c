/* across.c - see across.h. */
#include "lib/averaging/across.h"

#include <stdlib.h>

#include "lib/mesh/mesh.h"
#include "lib/mesh/mesh_tcp.h"
#include "lib/strategy/slices.h"

enum { NONE = UINT32_MAX, ALL = UINT32_MAX };
enum { PART, RESULT, READY = RESULT + DPB_ACROSS_CHANNELS, STEP };
enum { SENDS = 4 /* of one stage over a link at once, at most */ };
enum { ARENAS = 4 };
static const int64_t tells_every_ns = INT64_C(100) * 1000 * 1000;

_Static_assert((int)STEP < (int)DPB_MESH_KINDS, "kinds of messages");

/* Another rank on another machine. Parts and results are counted by buckets, over all meetings. */
struct link {
    uint32_t rank;
    uint64_t meetings; /* begun, in which both are */
    uint64_t asked;    /* READY sent */
    uint64_t told;     /* STEP sent */
    uint64_t steps;    /* that the rank has begun, as it last said */
    uint64_t sent[DPB_ACROSS_CHANNELS], come[DPB_ACROSS_CHANNELS]; /* parts */
};

struct meeting {
    uint32_t first, n; /* channels */
    uint32_t partner;  /* ALL; or its rank, on another machine */
};

struct dpb_across {
    const struct dpb_host *host;
    struct dpb_strategy *base;
    struct dpb_across_args args;
    struct dpb_mesh_transport *transport; /* NULL once the mesh owns it */
    struct dpb_mesh *mesh;
    uint32_t machine;
    uint32_t *ranks;     /* of this machine's workers, by local rank */
    uint32_t *delegates; /* [machine * workers + slice]; the owner on its own machine */
    uint32_t *by_rank;   /* links; NONE: on this machine */
    struct link *links;
    uint32_t n_links;
    void **views; /* of the machine's arenas, by kind and local rank */
    struct dpb_across_channel channels[DPB_ACROSS_CHANNELS];
    /* Arriving parts: by channel, source, bucket. */
    char *parts;
    uint64_t parts_bytes, slot_bytes[2], model_at;
    /* The step under way: who meets of this machine; and whether with others. */
    struct dpb_rank_set group;
    bool far;
    struct meeting meeting;
    uint64_t published;                   /* publishes begun */
    uint64_t joined[DPB_ACROSS_CHANNELS]; /* buckets of meetings of all */
    uint32_t next_gathered, next_spread;  /* slices of the bucket in these stages */
    int64_t gathered_ns, joined_ns;       /* of the last bucket; began_ns: first bytes of a part */
    int64_t began_ns;
    int64_t told_ns;
    bool restless; /* the mesh is to be moved in a step without a meeting, too */
};

static const char *const kinds[DPB_MESH_KINDS] = {"part of a sum",
                                                  "result",
                                                  "result for the optimizer's state",
                                                  "result for its second state",
                                                  "the model",
                                                  "word that memory is free",
                                                  "word of a step"};

/* ---- who is where -------------------------------------------------------------------------- */

static const struct dpb_comm_args *job_of(const struct dpb_across *across)
{
    return &across->args.job;
}

static uint32_t count_workers(const struct dpb_comm_args *job, uint32_t machine)
{
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < job->n_workers; rank++)
        n += job->machines[rank] == machine;
    return n;
}

/* The worker of a local rank on a machine. */
static uint32_t worker_at(const struct dpb_comm_args *job, uint32_t machine, uint32_t local)
{
    uint32_t rank = 0;
    while (job->machines[rank] != machine || local-- > 0)
        rank++;
    return rank;
}

struct dpb_comm_args dpb_across_within(const struct dpb_comm_args *job)
{
    struct dpb_comm_args within = *job;
    within.n_workers = count_workers(job, job->machines[job->rank]);
    within.rank = dpb_strategy_local_rank(job);
    return within;
}

uint32_t dpb_across_local(const struct dpb_comm_args *job, uint32_t rank)
{
    struct dpb_comm_args of = *job;
    of.rank = rank;
    return dpb_strategy_local_rank(&of);
}

/* Slices of another machine go to this machine's workers in turn. */
static void choose_delegates(struct dpb_across *across)
{
    const struct dpb_comm_args *job = job_of(across);
    for (uint32_t machine = 0; machine < job->n_machines; machine++)
        for (uint32_t q = 0; q < job->n_workers; q++)
            across->delegates[machine * job->n_workers + q] =
                job->machines[q] == machine
                    ? q
                    : worker_at(job, machine,
                                dpb_across_local(job, q) % count_workers(job, machine));
}

static uint32_t delegate_of(const struct dpb_across *across, uint32_t machine, uint32_t slice)
{
    return across->delegates[machine * job_of(across)->n_workers + slice];
}

static struct link *link_to(const struct dpb_across *across, uint32_t rank)
{
    return &across->links[across->by_rank[rank]];
}

static bool is_pair(const struct meeting *meeting)
{
    return meeting->partner != ALL;
}

static uint32_t count_slices(const struct dpb_across *across, const struct meeting *meeting)
{
    return is_pair(meeting) ? 2 : job_of(across)->n_workers;
}

static uint32_t owner_of(const struct dpb_across *across, const struct meeting *meeting,
                         uint32_t slice)
{
    const uint32_t rank = job_of(across)->rank, partner = meeting->partner;
    if (!is_pair(meeting))
        return slice;
    return (slice == 0) == (rank < partner) ? rank : partner;
}

/* Whether this worker gathers the slice, as its owner or delegate. */
static bool gathers(const struct dpb_across *across, const struct meeting *meeting, uint32_t slice)
{
    return is_pair(meeting) || delegate_of(across, across->machine, slice) == job_of(across)->rank;
}

static struct dpb_range own_slice(const struct dpb_across *across, const struct meeting *meeting,
                                  uint64_t length)
{
    const uint32_t rank = job_of(across)->rank;
    return dpb_slice_of(length, is_pair(meeting) ? rank > meeting->partner : rank,
                        count_slices(across, meeting));
}

/* The others that exchange slices with this owner: of other machines the delegates, by machine; or
 * the partner. NONE: there are no more. */
static uint32_t source_at(const struct dpb_across *across, const struct meeting *meeting,
                          uint32_t i)
{
    const struct dpb_comm_args *job = job_of(across);
    if (is_pair(meeting))
        return i == 0 ? meeting->partner : NONE;
    const uint32_t machine = i + (i >= across->machine);
    return machine < job->n_machines ? delegate_of(across, machine, job->rank) : NONE;
}

/* ---- messages ------------------------------------------------------------------------------ */

static const struct dpb_arenas *arenas_of(const struct dpb_across *across)
{
    return &across->base->arenas;
}

static size_t element_bytes(const struct dpb_across *across)
{
    return dpb_dtype_size(arenas_of(across)->layout.weight_type);
}

static uint64_t length_of(const struct dpb_across *across, uint64_t bucket)
{
    return dpb_pipeline_bucket_length(&across->base->pipeline, bucket);
}

/* Sums of partners go the way of partners, the model that of all. */
static bool goes_by_pairs(const struct dpb_across *across, uint32_t channel)
{
    return across->args.pairs && channel != DPB_ACROSS_MODEL;
}

/* The slice of worker `owner`, which exchanges it with `other`. */
static struct dpb_range slice_between(const struct dpb_across *across, uint32_t channel,
                                      uint32_t owner, uint32_t other, uint64_t bucket)
{
    const bool pair = goes_by_pairs(across, channel);
    return dpb_slice_of(length_of(across, bucket), pair ? owner > other : owner,
                        pair ? 2 : job_of(across)->n_workers);
}

static uint64_t part_at(const struct dpb_across *across, uint32_t channel, uint32_t source,
                        uint64_t bucket)
{
    const uint64_t n_buckets = arenas_of(across)->n_buckets;
    const bool model = channel == DPB_ACROSS_MODEL;
    const uint32_t n = across->args.pairs ? 1 : job_of(across)->n_machines - 1;
    const uint64_t row = model ? source : (uint64_t)channel * n + source;
    return (model ? across->model_at : 0) + (row * n_buckets + bucket) * across->slot_bytes[model];
}

/* The n-th bucket's part of a channel from `sender` to `owner`, counted over all meetings. */
static struct dpb_mesh_label part_label(const struct dpb_across *across, uint32_t channel,
                                        uint32_t sender, uint32_t owner, uint64_t n)
{
    const uint32_t *machines = job_of(across)->machines;
    const uint64_t n_buckets = arenas_of(across)->n_buckets, bucket = n % n_buckets;
    const struct dpb_range slice = slice_between(across, channel, owner, sender, bucket);
    const uint32_t source = goes_by_pairs(across, channel)
                                ? 0
                                : machines[sender] - (machines[sender] > machines[owner]);
    return (struct dpb_mesh_label){.kind = PART,
                                   .bucket = (uint32_t)bucket,
                                   .exchange = n / n_buckets * DPB_ACROSS_CHANNELS + channel,
                                   .at_bytes = part_at(across, channel, source, bucket),
                                   .bytes = (slice.end - slice.begin) * element_bytes(across)};
}

/* Likewise the result from `owner` to `receiver`. */
static struct dpb_mesh_label result_label(const struct dpb_across *across, uint32_t channel,
                                          uint32_t owner, uint32_t receiver, uint64_t n)
{
    const uint64_t n_buckets = arenas_of(across)->n_buckets, bucket = n % n_buckets;
    const struct dpb_range slice = slice_between(across, channel, owner, receiver, bucket);
    const uint64_t at = bucket * arenas_of(across)->bucket_elements + slice.begin;
    return (struct dpb_mesh_label){.kind = RESULT + channel,
                                   .bucket = (uint32_t)bucket,
                                   .exchange = n / n_buckets,
                                   .at_bytes = at * element_bytes(across),
                                   .bytes = (slice.end - slice.begin) * element_bytes(across)};
}

/* Parts that may have come over a link: their memory is free. */
static uint64_t allowed(const struct dpb_across *across, const struct link *link, uint32_t channel)
{
    const uint64_t n_buckets = arenas_of(across)->n_buckets;
    const uint32_t rank = job_of(across)->rank;
    if (goes_by_pairs(across, channel))
        return link->asked * n_buckets;
    return delegate_of(across, job_of(across)->machines[link->rank], rank) == link->rank
               ? across->joined[channel] + n_buckets
               : 0;
}

/* The number of the label's message, over all meetings, and what it must be. */
static bool is_expected(const struct dpb_across *across, uint32_t number,
                        const struct dpb_mesh_label *label, struct dpb_mesh_label *expected)
{
    const struct link *link = &across->links[number];
    const uint32_t rank = job_of(across)->rank;
    const uint64_t n_buckets = arenas_of(across)->n_buckets;
    const bool part = label->kind == PART;
    const uint32_t channel =
        part ? (uint32_t)(label->exchange % DPB_ACROSS_CHANNELS) : label->kind - RESULT;
    const uint64_t meeting = part ? label->exchange / DPB_ACROSS_CHANNELS : label->exchange;
    const uint64_t n = meeting * n_buckets + label->bucket;
    const uint64_t come =
        part ? link->come[channel] : dpb_mesh_arrived(across->mesh, number, label->kind);
    if (label->bucket >= n_buckets || n < come || n >= come + DPB_MESH_QUEUE ||
        n >= (part ? allowed(across, link, channel) : link->sent[channel]))
        return false;
    *expected = part ? part_label(across, channel, link->rank, rank, n)
                     : result_label(across, channel, link->rank, rank, n);
    return true;
}

static dpb_status begins(void *across_, uint32_t number, uint64_t n,
                         const struct dpb_mesh_label *label)
{
    struct dpb_across *across = across_;
    struct dpb_mesh_label expected = *label;
    const bool word = label->kind == READY || label->kind == STEP;
    const bool may = word ? label->exchange == n && label->bytes == 0
                          : label->kind < READY && is_expected(across, number, label, &expected);
    if (label->kind == PART)
        across->began_ns = across->host->now_ns();
    if (may && label->at_bytes == expected.at_bytes && label->bytes == expected.bytes)
        return DPB_OK;
    return across->host->fail(
        DPB_FAILED,
        "rank %u sent rank %u a %s for meeting %llu, bucket %u, %llu bytes, which it does not "
        "expect: the two do not run the same training",
        across->links[number].rank, job_of(across)->rank,
        label->kind < DPB_MESH_KINDS && kinds[label->kind] ? kinds[label->kind] : "message",
        (unsigned long long)(label->kind == PART ? label->exchange / DPB_ACROSS_CHANNELS
                                                 : label->exchange),
        label->bucket, (unsigned long long)label->bytes);
}

static void arrived(void *across_, uint32_t number, const struct dpb_mesh_label *label)
{
    struct dpb_across *across = across_;
    struct link *link = &across->links[number];
    if (label->kind == PART)
        link->come[label->exchange % DPB_ACROSS_CHANNELS]++;
    if (label->kind == STEP)
        link->steps = label->word;
}

static bool all_idle(const struct dpb_across *across)
{
    for (uint32_t i = 0; i < across->n_links; i++)
        if (!dpb_mesh_idle(across->mesh, i))
            return false;
    return true;
}

/* The first rank whose link takes no messages of one more stage; NONE: all do. */
static uint32_t crowded(const struct dpb_across *across)
{
    for (uint32_t i = 0; i < across->n_links; i++)
        if (dpb_mesh_room(across->mesh, i) < SENDS)
            return across->links[i].rank;
    return NONE;
}

static void send_word(struct dpb_across *across, struct link *link, uint32_t kind, uint64_t n,
                      uint64_t word)
{
    const struct dpb_mesh_label label = {.kind = kind, .exchange = n, .word = word};
    dpb_mesh_send(across->mesh, (uint32_t)(link - across->links), &label, NULL);
}

/* The number of the meeting's bucket over a link, over all meetings. */
static uint64_t number_of(const struct dpb_across *across, const struct meeting *meeting,
                          const struct link *link, uint64_t bucket)
{
    const uint64_t begun = meeting->first == DPB_ACROSS_MODEL ? across->published : link->meetings;
    return (begun - 1) * arenas_of(across)->n_buckets + bucket;
}

/* The channel's slice from the own memory. */
static void send_slice(struct dpb_across *across, const struct link *link, void *arena,
                       struct dpb_mesh_label label, uint64_t at_bytes)
{
    across->host->count_bytes(label.bytes);
    dpb_mesh_send(across->mesh, (uint32_t)(link - across->links), &label,
                  (const char *)arena + at_bytes);
}

static void send_parts(struct dpb_across *across, const struct meeting *meeting, uint32_t slice,
                       uint64_t bucket)
{
    const uint32_t rank = job_of(across)->rank, owner = owner_of(across, meeting, slice);
    struct link *link = link_to(across, owner);
    for (uint32_t channel = meeting->first; channel < meeting->first + meeting->n; channel++) {
        const uint64_t n = number_of(across, meeting, link, bucket);
        const uint64_t at = result_label(across, channel, owner, rank, n).at_bytes;
        send_slice(across, link, across->channels[channel].from,
                   part_label(across, channel, rank, owner, n), at);
        link->sent[channel]++;
    }
}

static void send_results(struct dpb_across *across, const struct meeting *meeting, uint64_t bucket)
{
    const uint32_t rank = job_of(across)->rank;
    uint32_t to;
    for (uint32_t i = 0; (to = source_at(across, meeting, i)) != NONE; i++)
        for (uint32_t channel = meeting->first; channel < meeting->first + meeting->n; channel++) {
            const struct link *link = link_to(across, to);
            const uint64_t n = number_of(across, meeting, link, bucket);
            const struct dpb_mesh_label label = result_label(across, channel, rank, to, n);
            send_slice(across, link, across->channels[channel].to, label, label.at_bytes);
        }
}

/* ---- what is missing: ranks, or NONE ------------------------------------------------------- */

static uint32_t missing_part(const struct dpb_across *across, const struct meeting *meeting,
                             uint64_t bucket)
{
    uint32_t from;
    for (uint32_t i = 0; (from = source_at(across, meeting, i)) != NONE; i++)
        for (uint32_t channel = meeting->first; channel < meeting->first + meeting->n; channel++) {
            const struct link *link = link_to(across, from);
            if (link->come[channel] <= number_of(across, meeting, link, bucket))
                return from;
        }
    return NONE;
}

static uint32_t missing_result(const struct dpb_across *across, const struct meeting *meeting,
                               uint64_t bucket)
{
    for (uint32_t slice = 0; slice < count_slices(across, meeting); slice++) {
        const uint32_t owner = owner_of(across, meeting, slice);
        if (!gathers(across, meeting, slice) || owner == job_of(across)->rank)
            continue;
        for (uint32_t channel = meeting->first; channel < meeting->first + meeting->n; channel++) {
            const struct link *link = link_to(across, owner);
            if (dpb_mesh_arrived(across->mesh, across->by_rank[owner], RESULT + channel) <=
                number_of(across, meeting, link, bucket))
                return owner;
        }
    }
    return NONE;
}

/* The partner that has not said that its memory is free. */
static uint32_t missing_ready(const struct dpb_across *across, const struct meeting *meeting)
{
    if (!is_pair(meeting))
        return NONE;
    const uint32_t number = across->by_rank[meeting->partner];
    return dpb_mesh_arrived(across->mesh, number, READY) < across->links[number].meetings
               ? meeting->partner
               : NONE;
}

/* Partners alone keep no bound (averaging.h). Two blocks of so many steps are no more than it: a
 * worker ends a block when all have begun it. */
static uint64_t steps_of_block(const struct dpb_across *across)
{
    return (across->args.lead + 1) / 2;
}

static uint64_t exchange_of(const struct dpb_across *across)
{
    return across->base->signals.exchange;
}

static uint32_t missing_step(const struct dpb_across *across)
{
    const uint64_t exchange = exchange_of(across), block = steps_of_block(across);
    if (!across->args.pairs || exchange % block != block - 1)
        return NONE;
    for (uint32_t i = 0; i < across->n_links; i++)
        if (across->links[i].steps <= exchange / block * block)
            return across->links[i].rank;
    return NONE;
}

/* ---- waiting ------------------------------------------------------------------------------- */

dpb_status dpb_across_move(struct dpb_across *across, int64_t until_ns, bool *moved)
{
    if (!across->far && !across->restless)
        return DPB_OK;
    DPB_TRY(dpb_mesh_move(across->mesh, until_ns, moved));
    across->restless = !all_idle(across);
    return DPB_OK;
}

static dpb_status wait_for(struct dpb_across *across, uint64_t bucket, uint32_t peer,
                           const char *purpose)
{
    const uint64_t length = bucket == UINT64_MAX ? 0 : length_of(across, bucket);
    const struct dpb_wait what = {.step = across->base->step.step,
                                  .bucket = bucket,
                                  .bytes = length * element_bytes(across),
                                  .peer = peer,
                                  .purpose = purpose};
    across->restless = true;
    return dpb_mesh_wait(across->mesh, &what);
}

/* What is missing on this machine; false: nothing. */
static bool misses_here(const struct dpb_across *across, uint64_t bucket, enum dpb_signal_kind kind,
                        uint32_t *peer)
{
    const uint32_t local = dpb_signals_missing(&across->base->signals, kind, across->group, bucket);
    if (local != NONE)
        *peer = across->ranks[local];
    return local != NONE;
}

/* The first that is missing, in the order of the stages. */
dpb_status dpb_across_wait(struct dpb_across *across, uint64_t bucket)
{
    const struct meeting *meeting = &across->meeting;
    uint32_t peer = NONE;
    if ((peer = crowded(across)) != NONE)
        return wait_for(across, bucket, peer, "the peer to take messages");
    if (misses_here(across, bucket, DPB_SIGNAL_PUSHED, &peer))
        return wait_for(across, bucket, peer, "the peer's update");
    if (across->far && (peer = missing_ready(across, meeting)) != NONE)
        return wait_for(across, bucket, peer, "the partner's step");
    if (across->far && (peer = missing_part(across, meeting, bucket)) != NONE)
        return wait_for(across, bucket, peer, "the peer's part of the mean");
    if (across->far && (peer = missing_result(across, meeting, bucket)) != NONE)
        return wait_for(across, bucket, peer, "the peer's slice");
    if (misses_here(across, bucket, DPB_SIGNAL_REDUCED, &peer))
        return wait_for(across, bucket, peer, "the peer's slice");
    peer = missing_step(across);
    return wait_for(across, bucket, peer == NONE ? job_of(across)->rank : peer, "the peer's step");
}

/* The own gradients: no other stage has a bucket, but others may need what is still to be sent. */
dpb_status dpb_across_update_wait(struct dpb_across *across, uint64_t bucket)
{
    if (dpb_strategy_own_ready(across->base, bucket) || all_idle(across))
        return dpb_strategy_own_wait(across->base, bucket);
    return wait_for(across, bucket, job_of(across)->rank, "its own gradients");
}

/* ---- stages -------------------------------------------------------------------------------- */

bool dpb_across_is_far(const struct dpb_across *across)
{
    return across && across->far;
}

void dpb_across_begin(struct dpb_across *across, struct dpb_rank_set group, bool far,
                      uint32_t partner, uint32_t n_channels)
{
    across->group = group;
    across->far = far;
    if (!far)
        return;
    across->meeting = (struct meeting){DPB_ACROSS_VALUES, n_channels, partner};
    for (uint32_t i = 0; i < across->n_links; i++)
        if (partner == ALL || across->links[i].rank == partner)
            across->links[i].meetings++;
}

bool dpb_across_tell_due(const struct dpb_across *across, uint64_t bucket)
{
    (void)bucket;
    return crowded(across) == NONE;
}

/* In the first bucket: the partner may send. In the last: this worker has come so far. */
void dpb_across_tell(struct dpb_across *across, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const uint64_t exchange = exchange_of(across);
    const int64_t now_ns = across->host->now_ns();
    if (bucket == 0 && across->far && is_pair(&across->meeting)) {
        struct link *link = link_to(across, across->meeting.partner);
        send_word(across, link, READY, link->asked, 0);
        link->asked++;
    }
    turn->at = turn->length;
    if (!dpb_strategy_is_last(across->base, bucket))
        return;
    across->restless = true;
    if (now_ns - across->told_ns < tells_every_ns &&
        !(across->args.pairs && exchange % steps_of_block(across) == 0))
        return;
    across->told_ns = now_ns;
    for (uint32_t i = 0; i < across->n_links; i++) {
        struct link *link = &across->links[i];
        send_word(across, link, STEP, link->told++, exchange + 1);
    }
}

typedef void (*piece_work)(void *strategy, uint32_t channel, struct dpb_piece piece);

/* From turn->at on; false: the time is over before the end of the range. */
static bool on_pieces(struct dpb_across *across, const struct meeting *meeting, uint64_t bucket,
                      struct dpb_range range, struct dpb_stage_turn *turn, piece_work work)
{
    turn->at = turn->at < range.begin ? range.begin : turn->at;
    while (turn->at < range.end && across->host->now_ns() < turn->until_ns) {
        const struct dpb_piece piece = dpb_strategy_piece(across->base, bucket, range.end, turn->at,
                                                          arenas_of(across)->layout.weight_type);
        for (uint32_t channel = meeting->first; channel < meeting->first + meeting->n; channel++)
            work(across->base, channel, piece);
        turn->at += piece.n;
    }
    return turn->at >= range.end;
}

/* A slice may be empty, so turn->at alone does not say which slices are done. */
static bool gather_bucket(struct dpb_across *across, const struct meeting *meeting, uint64_t bucket,
                          struct dpb_stage_turn *turn)
{
    const uint32_t n = count_slices(across, meeting);
    for (uint32_t *next = &across->next_gathered; *next < n; ++*next) {
        const struct dpb_range slice = dpb_slice_of(turn->length, *next, n);
        if (!gathers(across, meeting, *next))
            continue;
        if (!is_pair(meeting) &&
            !on_pieces(across, meeting, bucket, slice, turn, across->args.rule->gather))
            return false;
        if (owner_of(across, meeting, *next) != job_of(across)->rank)
            send_parts(across, meeting, *next, bucket);
    }
    across->next_gathered = 0;
    return true;
}

bool dpb_across_gather_due(const struct dpb_across *across, uint64_t bucket)
{
    return !across->far ||
           (dpb_signals_reached(&across->base->signals, DPB_SIGNAL_PUSHED, across->group, bucket) &&
            missing_ready(across, &across->meeting) == NONE && crowded(across) == NONE);
}

void dpb_across_gather(struct dpb_across *across, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const int64_t began_ns = across->host->now_ns();
    if (across->far && turn->at == 0)
        dpb_signals_span_late(&across->base->signals, DPB_SIGNAL_PUSHED, across->group, bucket);
    if (!across->far || gather_bucket(across, &across->meeting, bucket, turn))
        turn->at = turn->length;
    if (!across->far)
        return;
    across->gathered_ns = across->host->now_ns();
    across->host->span(bucket, DPB_PHASE_REDUCE, began_ns, across->gathered_ns);
}

/* This worker's slice, whose parts are all here. */
static bool join_bucket(struct dpb_across *across, const struct meeting *meeting, uint64_t bucket,
                        struct dpb_stage_turn *turn)
{
    const struct dpb_range slice = own_slice(across, meeting, turn->length);
    const void *parts[DPB_STRATEGY_WORKERS];
    uint32_t n_parts = 0;
    turn->at = turn->at < slice.begin ? slice.begin : turn->at;
    while (source_at(across, meeting, n_parts) != NONE)
        n_parts++;
    while (turn->at < slice.end && across->host->now_ns() < turn->until_ns) {
        const struct dpb_piece piece = dpb_strategy_piece(across->base, bucket, slice.end, turn->at,
                                                          arenas_of(across)->layout.weight_type);
        for (uint32_t channel = meeting->first; channel < meeting->first + meeting->n; channel++) {
            for (uint32_t i = 0; i < n_parts; i++)
                parts[i] = across->parts + part_at(across, channel, i, bucket) +
                           (turn->at - slice.begin) * element_bytes(across);
            across->args.rule->join(across->base, channel, piece, parts, n_parts);
        }
        turn->at += piece.n;
    }
    if (turn->at < slice.end)
        return false;
    for (uint32_t channel = meeting->first; channel < meeting->first + meeting->n; channel++)
        across->joined[channel]++;
    send_results(across, meeting, bucket);
    return true;
}

bool dpb_across_join_due(const struct dpb_across *across, uint64_t bucket)
{
    return missing_part(across, &across->meeting, bucket) == NONE && crowded(across) == NONE;
}

/* Until the first bytes of the last part came, a peer was late; then they moved. */
void dpb_across_join(struct dpb_across *across, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct dpb_host *host = across->host;
    const int64_t gathered_ns = across->gathered_ns, now_ns = host->now_ns();
    if (turn->at == 0 && across->began_ns > gathered_ns) {
        host->span(bucket, DPB_PHASE_WAIT_PEER, gathered_ns, across->began_ns);
        host->span(bucket, DPB_PHASE_TRANSFER, across->began_ns, now_ns);
    }
    if (join_bucket(across, &across->meeting, bucket, turn))
        turn->at = turn->length;
    across->joined_ns = host->now_ns();
    host->span(bucket, DPB_PHASE_REDUCE, now_ns, across->joined_ns);
}

bool dpb_across_spread_due(const struct dpb_across *across, uint64_t bucket)
{
    return !across->far || missing_result(across, &across->meeting, bucket) == NONE;
}

void dpb_across_spread(struct dpb_across *across, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct meeting *meeting = &across->meeting;
    const uint32_t n = across->far ? count_slices(across, meeting) : 0;
    if (across->far && turn->at == 0)
        across->host->span(bucket, DPB_PHASE_TRANSFER, across->joined_ns, across->host->now_ns());
    for (uint32_t *next = &across->next_spread; *next < n; ++*next) {
        const struct dpb_range slice = dpb_slice_of(turn->length, *next, n);
        if (gathers(across, meeting, *next) &&
            owner_of(across, meeting, *next) != job_of(across)->rank &&
            !on_pieces(across, meeting, bucket, slice, turn, across->args.rule->spread))
            return;
    }
    across->next_spread = 0;
    turn->at = turn->length;
}

bool dpb_across_take_due(const struct dpb_across *across, uint64_t bucket)
{
    return !dpb_strategy_is_last(across->base, bucket) ||
           (all_idle(across) && missing_step(across) == NONE);
}

/* ---- publish ------------------------------------------------------------------------------- */

/* As the stages do, bucket after bucket: gathers, and joins what has come, until all results are
 * here. */
dpb_status dpb_across_publish(struct dpb_across *across)
{
    const struct meeting all = {DPB_ACROSS_MODEL, 1, ALL};
    const uint64_t n_buckets = arenas_of(across)->n_buckets;
    uint64_t gathered = 0, joined = 0;
    across->published++;
    while (joined < n_buckets || missing_result(across, &all, n_buckets - 1) != NONE ||
           !all_idle(across)) {
        const bool room = crowded(across) == NONE;
        bool moved = false;
        if (room && joined < gathered && missing_part(across, &all, joined) == NONE) {
            struct dpb_stage_turn turn = {length_of(across, joined), 0, INT64_MAX};
            join_bucket(across, &all, joined++, &turn);
            continue;
        }
        if (room && gathered < n_buckets) {
            struct dpb_stage_turn turn = {length_of(across, gathered), 0, INT64_MAX};
            gather_bucket(across, &all, gathered++, &turn);
            continue;
        }
        DPB_TRY(dpb_mesh_move(across->mesh, INT64_MAX, &moved));
        if (moved)
            continue;
        const uint32_t part = joined < n_buckets ? missing_part(across, &all, joined) : NONE;
        const uint32_t result = missing_result(across, &all, n_buckets - 1);
        DPB_TRY(wait_for(across, UINT64_MAX,
                         part != NONE     ? part
                         : result != NONE ? result
                                          : across->links[0].rank,
                         "the peer's part of the mean model"));
    }
    return DPB_OK;
}

/* ---- life ---------------------------------------------------------------------------------- */

static uint64_t slot_bytes(const struct dpb_layout *layout, uint64_t bucket_elements, uint32_t n)
{
    const uint64_t longest = dpb_strategy_longest_bucket(layout, bucket_elements);
    return dpb_strategy_lines((longest + n - 1) / n * dpb_dtype_size(layout->weight_type));
}

/* *model_at: where parts of the model begin. */
static uint64_t parts_bytes(const struct dpb_across_args *args, const struct dpb_layout *layout,
                            uint64_t bucket_elements, uint64_t *model_at)
{
    const uint64_t n_buckets = dpb_strategy_count_buckets(layout, bucket_elements);
    const uint64_t n = args->job.n_machines - 1;
    const uint32_t n_workers = args->job.n_workers;
    *model_at = args->n_channels * (args->pairs ? 1 : n) * n_buckets *
                slot_bytes(layout, bucket_elements, args->pairs ? 2 : n_workers);
    return *model_at +
           (args->model ? n * n_buckets * slot_bytes(layout, bucket_elements, n_workers) : 0);
}

uint64_t dpb_across_bytes(const struct dpb_across_args *args, const struct dpb_layout *layout,
                          uint64_t bucket_elements)
{
    uint64_t model_at;
    return args->job.n_machines == 1 ? 0 : parts_bytes(args, layout, bucket_elements, &model_at);
}

static dpb_status make_tables(struct dpb_across *across)
{
    const struct dpb_comm_args *job = job_of(across);
    const uint32_t n_local = across->base->args.n_workers;
    across->machine = job->machines[job->rank];
    across->ranks = calloc(n_local, sizeof *across->ranks);
    across->by_rank = calloc(job->n_workers, sizeof *across->by_rank);
    across->delegates = calloc((size_t)job->n_machines * job->n_workers, sizeof *across->delegates);
    across->links = calloc(job->n_workers, sizeof *across->links);
    across->views = calloc((size_t)n_local * ARENAS, sizeof *across->views);
    if (!across->ranks || !across->by_rank || !across->delegates || !across->links ||
        !across->views)
        return across->host->fail(DPB_NO_MEMORY, "no memory for links to %u workers",
                                  job->n_workers);
    for (uint32_t local = 0; local < n_local; local++)
        across->ranks[local] = worker_at(job, across->machine, local);
    for (uint32_t rank = 0; rank < job->n_workers; rank++) {
        across->by_rank[rank] = NONE;
        if (job->machines[rank] == across->machine)
            continue;
        across->by_rank[rank] = across->n_links;
        across->links[across->n_links++].rank = rank;
    }
    choose_delegates(across);
    return DPB_OK;
}

dpb_status dpb_across_open(struct dpb_strategy *base, const struct dpb_across_args *args,
                           const struct dpb_tcp_options *tcp, struct dpb_across **made)
{
    struct dpb_across *across = calloc(1, sizeof *across);
    if (!across)
        return base->host->fail(DPB_NO_MEMORY, "no memory for links");
    across->host = base->host;
    across->base = base;
    across->args = *args;
    dpb_status status = make_tables(across);
    DPB_THEN(status, dpb_mesh_tcp_create(base->host, tcp, &across->transport));
    if (status == DPB_OK)
        *made = across;
    else
        dpb_across_close(across);
    return status;
}

struct dpb_arenas dpb_across_view(const struct dpb_across *across, const struct dpb_arenas *arenas)
{
    const uint32_t n = across->base->args.n_workers;
    struct dpb_arenas view = *arenas;
    void **weights = across->views, **gradients = weights + n, **scratch = gradients + n,
         **inbox = scratch + n;
    for (uint32_t local = 0; local < n; local++) {
        const uint32_t rank = across->ranks[local];
        weights[local] = arenas->peer_weights[rank];
        gradients[local] = arenas->peer_gradients[rank];
        scratch[local] = arenas->peer_scratch[rank];
        inbox[local] = arenas->peer_inbox[rank];
    }
    view.peer_weights = weights;
    view.peer_gradients = gradients;
    view.peer_scratch = scratch;
    view.peer_inbox = inbox;
    return view;
}

static dpb_status connect_mesh(struct dpb_across *across, struct dpb_mesh_peer *peers)
{
    const struct dpb_strategy *base = across->base;
    const struct dpb_arenas *arenas = &base->arenas;
    const uint64_t area = arenas->layout.n_elements * element_bytes(across);
    const struct dpb_mesh_memory memories[] = {
        {"parts of sums", across->parts, across->parts_bytes},
        {"the weights", arenas->weights, area}};
    const struct dpb_mesh_args args = {.host = across->host,
                                       .transport = across->transport,
                                       .name = "averaging",
                                       .what = "the replicas",
                                       .kinds = kinds,
                                       .rank = job_of(across)->rank,
                                       .keeper = 0,
                                       .peers = peers,
                                       .n_peers = across->n_links,
                                       .memories = memories,
                                       .n_memories = sizeof memories / sizeof *memories,
                                       .doorbell = base->signals.doorbell,
                                       .sink = {across, NULL, begins, NULL, arrived}};
    for (uint32_t i = 0; i < across->n_links; i++) {
        peers[i].rank = across->links[i].rank;
        peers[i].landings[PART] = (struct dpb_mesh_landing){across->parts, across->parts_bytes};
        for (uint32_t channel = 0; channel < DPB_ACROSS_CHANNELS; channel++)
            if (across->channels[channel].to)
                peers[i].landings[RESULT + channel] =
                    (struct dpb_mesh_landing){across->channels[channel].to, area};
    }
    across->transport = NULL; /* the mesh's from here on */
    return dpb_mesh_open(&args, &across->mesh);
}

dpb_status dpb_across_connect(struct dpb_across *across,
                              const struct dpb_across_channel channels[DPB_ACROSS_CHANNELS])
{
    const struct dpb_arenas *arenas = &across->base->arenas;
    const uint64_t elements = arenas->bucket_elements;
    const uint32_t n_workers = job_of(across)->n_workers;
    across->base->signals.ranks = across->ranks;
    for (uint32_t channel = 0; channel < DPB_ACROSS_CHANNELS; channel++)
        across->channels[channel] = channels[channel];
    across->slot_bytes[0] =
        slot_bytes(&arenas->layout, elements, across->args.pairs ? 2 : n_workers);
    across->slot_bytes[1] = slot_bytes(&arenas->layout, elements, n_workers);
    across->parts_bytes = parts_bytes(&across->args, &arenas->layout, elements, &across->model_at);
    across->parts = across->host->alloc(across->parts_bytes);
    if (!across->parts)
        return DPB_NO_MEMORY;
    DPB_TRY(dpb_strategy_open_doorbell(across->base, "averaging"));
    struct dpb_mesh_peer *peers = calloc(across->n_links, sizeof *peers);
    if (!peers)
        return across->host->fail(DPB_NO_MEMORY, "no memory for %u links", across->n_links);
    dpb_status status = connect_mesh(across, peers);
    free(peers);
    return status;
}

void dpb_across_close(struct dpb_across *across)
{
    if (!across)
        return;
    const struct dpb_strategy *base = across->base;
    const bool begun = base->pipeline.done && base->signals.exchange != UINT64_MAX;
    dpb_mesh_close(across->mesh, !begun || across->host->event->poll(base->pipeline.done));
    if (across->transport)
        across->transport->ops->close(across->transport, false);
    across->host->release(across->parts, across->parts_bytes);
    free(across->ranks);
    free(across->by_rank);
    free(across->delegates);
    free(across->links);
    free(across->views);
    free(across);
}
