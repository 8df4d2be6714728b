/*
 * links.c - the links of ps_cpu between ranks of different machines, and of ps_async between all
 * workers and servers: see ps.h. Each worker has one to each shard elsewhere, which is also its way
 * back.
 *
 * A worker pushes its part of a bucket to each shard. It lands in memory that the shard keeps for
 * this worker, at a place of its own for each bucket: free again when the worker has got the new
 * weights of the bucket, and nobody pushes it again before. New weights land in the worker's arena:
 * its own gradients of the bucket have come, so it reads these weights no more. So nothing needs
 * credits.
 *
 *     worker -> server   STEP       parameters of a turn, before its first gradients; whether it
 *                                   pushes and fetches. ps_cpu: both, a turn is an exchange
 *     worker -> shard    GRADIENTS  the shard's slice of a bucket; with a codec a message of it,
 *                                   and in `word` the step of this message
 *     shard -> worker    WEIGHTS    the same slice, updated; with how long this worker's gradients
 *                                   waited for others'
 *     worker 0 -> server LOAD       all weights
 *     server -> worker 0 LOADED     they have come
 * and of ps_async alone
 *     worker -> server   SAY        that it meets the others, or that nobody waits for it: `word`
 *     server -> worker   MODEL      the server's slices, once all workers meet
 *     server -> worker   SAY        that the exchange under way will not count: `word`
 *     server -> worker   AGE        of the gradients of an exchange, in `word`
 */
#include <stdlib.h>
#include <string.h>

#include "comm/ps_cpu/ps.h"

enum { STEP, GRADIENTS, WEIGHTS, LOAD, LOADED, SAY, MODEL, AGE };
enum { NONE = UINT32_MAX, STEP_BYTES = 5 * 8 };
enum { PUSHES = 1, FETCHES = 2 };

static const char *const kinds[MESH_KINDS] = {"parameters",      "gradients",       "new weights",
                                              "weights to load", "loading weights", "word",
                                              "the model",       "age of gradients"};

_Static_assert((int)AGE < (int)MESH_KINDS, "kinds of messages");

struct link {
    uint32_t rank;
    bool is_shard, is_worker; /* for this rank */
    char *inbox;              /* its gradients; NULL: it pushes none here */
    uint64_t pushed, given;   /* slices sent to it */
    uint64_t asked;           /* slices of weights that it is to send */
    uint64_t freed, turns;    /* its gradients that are used, in slices; its turns that ended */
    uint64_t n_loads;         /* sent, or answered */
    uint64_t said, models, n_ages; /* sent: words, slices of the model; expected: slices; ages */
    uint64_t word;                 /* the last that it said */
    uint64_t ages[LINKS_AGES];     /* of the own gradients, by exchange */
    /* By bucket, on this machine's clock: a slice begins to come, and is here. */
    int64_t *began_ns, *came_ns;   /* gradients */
    int64_t *given_ns, *waited_ns; /* weights: are here; its shard waited for late workers */
    uint8_t *step;                 /* parameters that it has sent */
};

struct links {
    const struct dpb_host *host;
    struct strategy *base;
    struct mesh *mesh;
    struct doorbell *doorbell;
    struct pollfd *fds;
    struct link *links;
    uint32_t *by_rank; /* NONE: on this machine */
    uint32_t n;
    uint64_t slice_elements; /* places in the outbox, and without a codec in the inbox */
    uint64_t inbox_slot;     /* bytes of a place in the inbox */
    char *inbox;             /* of all links */
    uint64_t inbox_bytes;
    uint8_t *steps;   /* parameters: own, then of each rank */
    char *outbox;     /* by worker; NULL: weights are sent from the arena */
    uint32_t *comers; /* workers whose turns have come whole, in that order */
    uint64_t n_come, n_taken;
    struct links_turn turn;                /* of this worker */
    uint64_t n_turns, n_pushes, n_fetches; /* begun */
};

/* ---- who and how much ---------------------------------------------------------------------- */

static uint32_t n_ranks(const struct dpb_comm_args *args)
{
    return args->n_workers + args->n_servers;
}

static bool is_a_shard(const struct dpb_comm_args *args, uint32_t rank)
{
    struct rank_set all = ps_shards(args);
    return rank >= all.first && rank < all.first + all.n;
}

/* Ranks that work together, but on different machines. */
static bool has_link(const struct dpb_comm_args *args, uint32_t rank)
{
    bool served = args->role == DPB_WORKER && is_a_shard(args, rank);
    bool serves = ps_is_shard(args) && rank < args->n_workers;
    return (served || serves) && !ps_is_here(args, rank);
}

/* The most that a slice has: a bucket may be given larger than the model is. */
static uint64_t slice_elements(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                               uint64_t bucket_elements)
{
    uint32_t n = ps_shards(args).n;
    return (strategy_longest_bucket(layout, bucket_elements) + n - 1) / n;
}

static uint64_t inbox_slot(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                           uint64_t bucket_elements)
{
    return args->codec ? coded_slot_bytes(args->codec, layout, bucket_elements)
                       : slice_elements(args, layout, bucket_elements) *
                             dpb_dtype_size(layout->gradient_type);
}

uint64_t links_inbox_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                           uint64_t bucket_elements, const struct links_memory *memory)
{
    const uint64_t in = inbox_slot(args, layout, bucket_elements);
    const uint64_t out =
        slice_elements(args, layout, bucket_elements) * dpb_dtype_size(layout->weight_type);
    uint64_t n = 0;
    for (uint32_t rank = 0; rank < args->n_workers && ps_is_shard(args); rank++)
        n += has_link(args, rank);
    if (memory->accrues && args->role == DPB_WORKER)
        return layout->n_elements * dpb_dtype_size(layout->gradient_type);
    return n * strategy_count_buckets(layout, bucket_elements) *
           (in + (memory->keeps_sent ? out : 0));
}

static uint64_t place_of(const struct links *links, uint64_t bucket, dpb_dtype type)
{
    return bucket * links->slice_elements * dpb_dtype_size(type);
}

/* Where what is pushed lands: behind the head of a message. */
static uint64_t inbox_at(const struct links *links, uint64_t bucket)
{
    return bucket * links->inbox_slot + (links->base->coded ? sizeof(struct coded_message) : 0);
}

static struct link *link_to(const struct links *links, uint32_t rank)
{
    return &links->links[links->by_rank[rank]];
}

/* ---- messages ------------------------------------------------------------------------------ */

static void write_step(uint8_t bytes[STEP_BYTES], const struct links_news *news)
{
    const struct dpb_step *step = &news->step;
    uint64_t words[STEP_BYTES / 8] = {step->step, 0, 0, step->seal,
                                      (news->pushes ? PUSHES : 0) | (news->fetches ? FETCHES : 0)};
    memcpy(&words[1], &step->learning_rate, 8);
    memcpy(&words[2], &step->scale, 8);
    for (int i = 0; i < STEP_BYTES; i++)
        bytes[i] = (uint8_t)(words[i / 8] >> (8 * (i % 8)));
}

static struct links_news read_step(const uint8_t bytes[STEP_BYTES])
{
    uint64_t words[STEP_BYTES / 8] = {0};
    struct dpb_step step = {0};
    for (int i = 0; i < STEP_BYTES; i++)
        words[i / 8] |= (uint64_t)bytes[i] << (8 * (i % 8));
    step.step = words[0];
    memcpy(&step.learning_rate, &words[1], 8);
    memcpy(&step.scale, &words[2], 8);
    step.seal = words[3];
    return (struct links_news){step, words[4] & PUSHES, words[4] & FETCHES};
}

/* The n-th slice between a worker and a shard (`weights`: the way back). */
static struct mesh_label slice_label(const struct links *links, bool weights, uint32_t shard,
                                     uint64_t n)
{
    const struct strategy *base = links->base;
    const struct dpb_layout *layout = &base->arenas.layout;
    uint64_t bucket = n % base->arenas.n_buckets;
    uint64_t length = pipeline_bucket_length(&base->pipeline, bucket);
    struct dpb_range slice = ps_slice(&base->args, shard, bucket, length);
    size_t size = dpb_dtype_size(weights ? layout->weight_type : layout->gradient_type);
    uint64_t at = (bucket * base->arenas.bucket_elements + slice.begin) * size;
    const bool coded = base->coded && !weights;
    const uint64_t bytes = (slice.end - slice.begin) * size;
    return (struct mesh_label){.kind = weights ? WEIGHTS : GRADIENTS,
                               .bucket = (uint32_t)bucket,
                               .exchange = n / base->arenas.n_buckets,
                               .at_bytes = weights ? at : inbox_at(links, bucket),
                               .bytes = coded && bytes > 0 ? coded_content_bytes(base) : bytes,
                               .or_less = coded};
}

static struct mesh_label step_label(uint64_t turn)
{
    return (struct mesh_label){.kind = STEP, .exchange = turn, .bytes = STEP_BYTES};
}

/* What has no payload: the n-th of its kind, with a word. */
static struct mesh_label word_label(uint32_t kind, uint64_t n, uint64_t word)
{
    return (struct mesh_label){.kind = kind, .exchange = n, .word = word};
}

/* The n-th slice of the model lies where its weights do. */
static struct mesh_label model_label(const struct links *links, uint32_t shard, uint64_t n)
{
    struct mesh_label label = slice_label(links, true, shard, n);
    label.kind = MODEL;
    return label;
}

/* How often is said in `exchange`. */
static struct mesh_label load_label(const struct links *links, uint32_t kind, uint64_t n)
{
    const struct dpb_layout *layout = &links->base->arenas.layout;
    uint64_t bytes = layout->n_elements * dpb_dtype_size(layout->weight_type);
    return (struct mesh_label){.kind = kind, .exchange = n, .bytes = kind == LOAD ? bytes : 0};
}

/* ---- what the mesh asks -------------------------------------------------------------------- */

static bool expects_gradients(const struct links *links, const struct link *link, uint64_t n,
                              struct mesh_label *label)
{
    /* Its place is free: ps_cpu has given the weights of the exchange before, or the turn before
     * has ended. */
    if (!link->is_worker || n >= link->freed + links->base->arenas.n_buckets)
        return false;
    *label = slice_label(links, false, links->base->args.rank, n);
    if (link->began_ns[label->bucket] <= link->came_ns[label->bucket])
        link->began_ns[label->bucket] = links->host->now_ns();
    return true;
}

static bool expects(void *links_, uint32_t number, uint32_t kind, uint64_t n,
                    struct mesh_label *label)
{
    const struct links *links = links_;
    const struct link *link = &links->links[number];
    const struct dpb_comm_args *args = &links->base->args;
    bool serves = args->role == DPB_SERVER && link->is_worker;
    switch (kind) {
    case STEP:
        *label = step_label(n);
        return serves && n == link->turns;
    case GRADIENTS:
        return expects_gradients(links, link, n, label);
    case WEIGHTS:
        *label = slice_label(links, true, link->rank, n);
        return link->is_shard && n < link->asked;
    case LOAD:
        *label = load_label(links, LOAD, n);
        return serves && link->rank == 0 && n == link->n_loads;
    case LOADED:
        *label = load_label(links, LOADED, n);
        return link->is_shard && n < link->n_loads;
    case SAY:
        *label = word_label(SAY, n, 0);
        return serves || link->is_shard;
    case MODEL:
        *label = model_label(links, link->rank, n);
        return link->is_shard && n < link->models;
    case AGE:
        *label = word_label(AGE, n, 0);
        return link->is_shard && n < link->pushed;
    default:
        return false;
    }
}

static void note_comer(struct links *links, const struct link *link)
{
    links->comers[links->n_come++ % links->n] = link->rank;
}

static struct coded_message *message_of(const struct link *link, uint64_t at_bytes)
{
    return (struct coded_message *)(void *)(link->inbox + at_bytes - sizeof(struct coded_message));
}

static void arrived(void *links_, uint32_t number, const struct mesh_label *label)
{
    struct links *links = links_;
    struct link *link = &links->links[number];
    const int64_t now_ns = links->host->now_ns();
    switch (label->kind) {
    case STEP:
        if (!read_step(link->step).pushes)
            note_comer(links, link);
        return;
    case GRADIENTS:
        link->came_ns[label->bucket] = now_ns;
        if (links->base->coded) {
            message_of(link, label->at_bytes)->bytes = label->bytes;
            message_of(link, label->at_bytes)->step = label->word;
        }
        if (label->bucket + 1 == links->base->arenas.n_buckets)
            note_comer(links, link);
        return;
    case SAY:
        __atomic_store_n(&link->word, label->word, __ATOMIC_RELAXED);
        return;
    case AGE:
        link->ages[label->exchange % LINKS_AGES] = label->word;
        for (uint32_t i = 0; i < links->turn.n_gradients; i++)
            links->host->age(label->word);
        return;
    case WEIGHTS:
        break;
    default:
        return;
    }
    link->given_ns[label->bucket] = now_ns;
    link->waited_ns[label->bucket] = (int64_t)(label->word < INT64_MAX ? label->word : 0);
    if (links->base->args.n_servers > 0) /* a server counts nothing by itself */
        links->host->count_bytes(label->bytes);
}

/* ---- sending ------------------------------------------------------------------------------- */

uint32_t links_crowded(const struct links *links, bool weights)
{
    for (uint32_t i = 0; i < links->n; i++) {
        const struct link *link = &links->links[i];
        if ((weights ? link->is_worker : link->is_shard) && mesh_room(links->mesh, i) < 2)
            return link->rank;
    }
    return NONE;
}

/* The servers have all of the turn before, also its parameters. */
static void begin_turn(struct links *links)
{
    const struct strategy *base = links->base;
    const struct links_news news = {base->step, links->turn.gradients != NULL, links->turn.fetches};
    const struct mesh_label label = step_label(links->n_turns++);
    write_step(links->steps, &news);
    links->n_pushes += news.pushes;
    links->n_fetches += news.fetches;
    for (uint32_t i = 0; i < links->n && base->args.n_servers > 0; i++)
        if (links->links[i].is_shard)
            mesh_send(links->mesh, i, &label, links->steps);
}

/* What is pushed of a bucket to a shard, whose slice begins at element `at`. */
static const void *payload_of(const struct links *links, uint64_t bucket, uint64_t at,
                              struct mesh_label *label)
{
    const struct strategy *base = links->base;
    const size_t size = dpb_dtype_size(base->arenas.layout.gradient_type);
    if (!base->coded)
        return (const char *)links->turn.gradients +
               (bucket * base->arenas.bucket_elements + at) * size;
    const struct coded_message *message = coded_message(base, base->args.rank, bucket);
    label->bytes = label->bytes > 0 ? message->bytes : 0;
    label->word = message->step;
    return message->content;
}

void links_push(struct links *links, uint64_t bucket, uint64_t length)
{
    const struct dpb_comm_args *args = &links->base->args;
    if (bucket == 0)
        begin_turn(links);
    for (uint32_t i = 0; i < links->n; i++) {
        struct link *link = &links->links[i];
        if (!link->is_shard)
            continue;
        struct dpb_range slice = ps_slice(args, link->rank, bucket, length);
        struct mesh_label label = slice_label(links, false, link->rank, link->pushed++);
        link->asked += links->turn.fetches;
        const void *payload = payload_of(links, bucket, slice.begin, &label);
        mesh_send(links->mesh, i, &label, payload);
        links->host->count_bytes(label.bytes);
    }
}

/* ---- one worker at a time: ps_async -------------------------------------------------------- */

uint32_t links_next_turn(struct links *links, struct links_news *news)
{
    if (links->n_taken == links->n_come)
        return NONE;
    const uint32_t worker = links->comers[links->n_taken % links->n];
    const struct link *link = link_to(links, worker);
    if (mesh_arrived(links->mesh, links->by_rank[worker], STEP) <= link->turns)
        return NONE; /* by RDMA it may come behind the gradients */
    *news = read_step(link->step);
    links->n_taken++;
    return worker;
}

void links_end_turn(struct links *links, uint32_t worker, bool pushes)
{
    struct link *link = link_to(links, worker);
    link->turns++;
    link->freed += pushes ? links->base->arenas.n_buckets : 0;
}

void links_keep_sent(struct links *links, uint32_t worker)
{
    const struct strategy *base = links->base;
    const struct dpb_comm_args *args = &base->args;
    const dpb_dtype type = base->arenas.layout.weight_type;
    char *outbox =
        links->outbox + place_of(links, base->arenas.n_buckets, type) * links->by_rank[worker];
    for (uint64_t bucket = 0; bucket < base->arenas.n_buckets; bucket++) {
        const uint64_t length = pipeline_bucket_length(&base->pipeline, bucket);
        const struct dpb_range slice = ps_slice(args, args->rank, bucket, length);
        const uint64_t begin = bucket * base->arenas.bucket_elements + slice.begin;
        links->host->vec->copy(type, outbox + place_of(links, bucket, type),
                               strategy_weights(base, args->rank, begin), slice.end - slice.begin);
    }
}

bool links_give_one(struct links *links, uint32_t worker, uint64_t bucket, bool model,
                    int64_t waited_ns)
{
    const struct strategy *base = links->base;
    const dpb_dtype type = base->arenas.layout.weight_type;
    const uint32_t number = links->by_rank[worker], self = base->args.rank;
    struct link *link = &links->links[number];
    if (mesh_room(links->mesh, number) < 2)
        return false;
    struct mesh_label label = model ? model_label(links, self, link->models++)
                                    : slice_label(links, true, self, link->given++);
    label.word = model ? 0 : (uint64_t)waited_ns;
    mesh_send(links->mesh, number, &label,
              links->outbox + place_of(links, base->arenas.n_buckets, type) * number +
                  place_of(links, bucket, type));
    return true;
}

bool links_tell_age(struct links *links, uint32_t worker, uint64_t age)
{
    const uint32_t number = links->by_rank[worker];
    if (mesh_room(links->mesh, number) < 2)
        return false;
    const struct mesh_label label = word_label(AGE, links->links[number].n_ages++, age);
    mesh_send(links->mesh, number, &label, NULL);
    return true;
}

bool links_tell_word(struct links *links, uint32_t worker, uint64_t word)
{
    const uint32_t number = links->by_rank[worker];
    if (mesh_room(links->mesh, number) < 2)
        return false;
    const struct mesh_label label = word_label(SAY, links->links[number].said++, word);
    mesh_send(links->mesh, number, &label, NULL);
    return true;
}

uint64_t links_said(const struct links *links, uint32_t rank)
{
    return __atomic_load_n(&link_to(links, rank)->word, __ATOMIC_RELAXED);
}

uint64_t links_age(const struct links *links, uint32_t shard, uint64_t push)
{
    return link_to(links, shard)->ages[push % LINKS_AGES];
}

bool links_aged(const struct links *links, uint32_t shard)
{
    return !links->turn.gradients ||
           mesh_arrived(links->mesh, links->by_rank[shard], AGE) >= links->n_pushes;
}

void links_set_turn(struct links *links, const struct links_turn *turn)
{
    links->turn = *turn;
}

const struct links_turn *links_turn(const struct links *links)
{
    return &links->turn;
}

uint64_t links_turns(const struct links *links)
{
    return links->n_turns;
}

uint64_t links_pushes(const struct links *links)
{
    return links->n_pushes;
}

void *links_accrued(const struct links *links)
{
    return links->inbox;
}

void links_ask(struct links *links)
{
    for (uint32_t i = 0; i < links->n; i++)
        links->links[i].asked += links->base->arenas.n_buckets;
    begin_turn(links);
}

/* All links of a worker are to servers. */
static uint32_t untold_server(const struct links *links)
{
    for (uint32_t i = 0; i < links->n; i++)
        if (!links_aged(links, links->links[i].rank))
            return links->links[i].rank;
    return links_busy(links);
}

dpb_status links_push_alone(struct links *links)
{
    const struct strategy *base = links->base;
    struct dpb_wait what = {.bucket = UINT64_MAX,
                            .step = base->step.step,
                            .purpose = "the server to apply the last gradients"};
    for (uint64_t bucket = 0;
         bucket < base->arenas.n_buckets || (what.peer = untold_server(links)) != NONE;) {
        if (bucket < base->arenas.n_buckets && (what.peer = links_crowded(links, false)) == NONE) {
            links_push(links, bucket, pipeline_bucket_length(&base->pipeline, bucket));
            bucket++;
            continue;
        }
        DPB_TRY(links_advance(links, &what));
    }
    return DPB_OK;
}

static struct link *awaited_model(const struct links *links)
{
    for (uint32_t i = 0; i < links->n; i++)
        if (mesh_arrived(links->mesh, i, MODEL) < links->links[i].models)
            return &links->links[i];
    return NULL;
}

dpb_status links_say(struct links *links, uint64_t word, bool meets)
{
    struct dpb_wait what = {.bucket = UINT64_MAX,
                            .step = links->base->step.step,
                            .purpose = "the model, for which all workers meet"};
    for (uint32_t i = 0; i < links->n; i++) {
        const struct mesh_label label = word_label(SAY, links->links[i].said++, word);
        mesh_send(links->mesh, i, &label, NULL); /* between steps there is room */
        links->links[i].models += meets ? links->base->arenas.n_buckets : 0;
    }
    while (links_busy(links) != NONE || awaited_model(links)) {
        const struct link *link = awaited_model(links);
        what.peer = link ? link->rank : links_busy(links);
        DPB_TRY(links_advance(links, &what));
    }
    return DPB_OK;
}

/* ---- all workers --------------------------------------------------------------------------- */

void links_give(struct links *links, uint64_t bucket, uint64_t length, int64_t pushed_ns)
{
    const struct strategy *base = links->base;
    const struct dpb_comm_args *args = &base->args;
    uint64_t begin = bucket * base->arenas.bucket_elements;
    struct dpb_range slice = ps_slice(args, args->rank, bucket, length);
    for (uint32_t i = 0; i < links->n; i++) {
        struct link *link = &links->links[i];
        if (!link->is_worker)
            continue;
        struct mesh_label label = slice_label(links, true, args->rank, link->given++);
        link->freed++;
        link->turns += bucket + 1 == base->arenas.n_buckets;
        label.word = (uint64_t)(pushed_ns - link->came_ns[bucket]);
        mesh_send(links->mesh, i, &label, strategy_weights(base, args->rank, begin + slice.begin));
        if (args->role == DPB_WORKER)
            links->host->count_bytes(label.bytes);
    }
}

uint32_t links_busy(const struct links *links)
{
    for (uint32_t i = 0; i < links->n; i++)
        if (!mesh_idle(links->mesh, i))
            return links->links[i].rank;
    return NONE;
}

/* ---- what is here -------------------------------------------------------------------------- */

/* Of the n-th exchange, from 0. */
static bool has_come(const struct links *links, uint32_t rank, uint32_t kind, uint64_t n,
                     uint64_t bucket)
{
    return mesh_arrived(links->mesh, links->by_rank[rank], kind) >
           n * links->base->arenas.n_buckets + bucket;
}

bool links_pushed(const struct links *links, uint32_t worker, uint64_t bucket)
{
    return has_come(links, worker, GRADIENTS, links->base->signals.exchange, bucket);
}

int64_t links_pushed_ns(const struct links *links, uint32_t worker, uint64_t bucket)
{
    return link_to(links, worker)->came_ns[bucket];
}

int64_t links_push_began_ns(const struct links *links, uint32_t worker, uint64_t bucket)
{
    return link_to(links, worker)->began_ns[bucket];
}

void *links_gradients(const struct links *links, uint32_t worker, uint64_t bucket, uint64_t at)
{
    return link_to(links, worker)->inbox + inbox_at(links, bucket) +
           at * dpb_dtype_size(links->base->arenas.layout.gradient_type);
}

const struct coded_message *links_message(const struct links *links, uint32_t worker,
                                          uint64_t bucket)
{
    return message_of(link_to(links, worker), inbox_at(links, bucket));
}

bool links_updated(const struct links *links, uint32_t shard, uint64_t bucket)
{
    return !links->turn.fetches || has_come(links, shard, WEIGHTS, links->n_fetches - 1, bucket);
}

/* From the push on it is under way, but for the time in which the shard waited for other workers.
 * When that was is not known here to the part of a way: it is taken to be just before the weights
 * came. */
void links_report(const struct links *links, uint32_t shard, uint64_t bucket)
{
    const struct link *link = link_to(links, shard);
    int64_t ready_ns = signals_latest_ns(&links->base->signals, ps_pushed(links->base),
                                         strategy_self(links->base), bucket);
    int64_t given_ns = link->given_ns[bucket], from_ns = given_ns - link->waited_ns[bucket];
    links->host->span(bucket, DPB_PHASE_TRANSFER, ready_ns, given_ns);
    if (link->waited_ns[bucket] > 0)
        links->host->span(bucket, DPB_PHASE_WAIT_PEER, from_ns > ready_ns ? from_ns : ready_ns,
                          given_ns);
}

/* ---- exchanges, for servers ---------------------------------------------------------------- */

bool links_announced(const struct links *links, uint32_t worker, uint64_t exchange)
{
    return mesh_arrived(links->mesh, links->by_rank[worker], STEP) > exchange;
}

bool links_left(const struct links *links, uint32_t worker)
{
    return mesh_left(links->mesh, links->by_rank[worker]);
}

struct dpb_step links_step(const struct links *links)
{
    return read_step(link_to(links, 0)->step).step;
}

/* ---- moving and waiting -------------------------------------------------------------------- */

/* Worker 0's weights are here: it waits to be told. */
static void answer_load(struct links *links)
{
    uint32_t number = links->by_rank[0];
    if (links->base->args.role != DPB_SERVER || number == NONE)
        return;
    struct link *link = &links->links[number];
    if (mesh_arrived(links->mesh, number, LOAD) == link->n_loads)
        return;
    struct mesh_label label = load_label(links, LOADED, link->n_loads++);
    mesh_send(links->mesh, number, &label, NULL);
}

dpb_status links_move(struct links *links, int64_t until_ns, bool *moved)
{
    DPB_TRY(mesh_move(links->mesh, until_ns, moved));
    answer_load(links);
    return DPB_OK;
}

dpb_status links_wait(struct links *links, const struct dpb_wait *what)
{
    dpb_status status = DPB_OK;
    links->host->note("wait_peer", what->bucket, what->peer);
    links->fds[0] = (struct pollfd){.fd = doorbell_fd(links->doorbell), .events = POLLIN};
    if (doorbell_arm(links->doorbell) && mesh_watch(links->mesh, links->fds + 1))
        status = links->host->poll(links->fds, 1 + mesh_n_watched(links->mesh), what, NULL);
    doorbell_disarm(links->doorbell);
    return status;
}

dpb_status links_advance(struct links *links, const struct dpb_wait *what)
{
    bool moved = false;
    DPB_TRY(links_move(links, INT64_MAX, &moved));
    return moved ? DPB_OK : links_wait(links, what);
}

static struct link *awaited_load(const struct links *links)
{
    for (uint32_t i = 0; i < links->n; i++)
        if (links->links[i].is_shard &&
            mesh_arrived(links->mesh, i, LOADED) < links->links[i].n_loads)
            return &links->links[i];
    return NULL;
}

dpb_status links_load(struct links *links)
{
    const struct dpb_arenas *arenas = &links->base->arenas;
    struct dpb_wait what = {.bucket = UINT64_MAX,
                            .step = links->base->step.step,
                            .bytes = load_label(links, LOAD, 0).bytes,
                            .purpose = "the server to take the weights"};
    for (uint32_t i = 0; i < links->n; i++) {
        struct mesh_label label = load_label(links, LOAD, links->links[i].n_loads++);
        mesh_send(links->mesh, i, &label, arenas->weights);
    }
    for (const struct link *link; (link = awaited_load(links));) {
        what.peer = link->rank;
        DPB_TRY(links_advance(links, &what));
    }
    return DPB_OK;
}

/* ---- making and ending --------------------------------------------------------------------- */

static size_t times_bytes(const struct links *links)
{
    return 4 * (links->base->arenas.n_buckets + 1) * sizeof(int64_t);
}

static size_t steps_bytes(const struct links *links)
{
    return (1 + (size_t)n_ranks(&links->base->args)) * STEP_BYTES;
}

static dpb_status make_link(struct links *links, uint32_t rank, char **inbox)
{
    const struct strategy *base = links->base;
    const struct dpb_arenas *arenas = &base->arenas;
    struct link *link = &links->links[links->n];
    int64_t *times = links->host->alloc(times_bytes(links));
    if (!times)
        return DPB_NO_MEMORY;
    *link =
        (struct link){.rank = rank,
                      .is_shard = base->args.role == DPB_WORKER && is_a_shard(&base->args, rank),
                      .is_worker = ps_is_shard(&base->args) && rank < base->args.n_workers,
                      .began_ns = times,
                      .came_ns = times + arenas->n_buckets,
                      .given_ns = times + 2 * arenas->n_buckets,
                      .waited_ns = times + 3 * arenas->n_buckets,
                      .step = links->steps + (1 + (size_t)rank) * STEP_BYTES};
    if (link->is_worker) {
        link->inbox = *inbox;
        *inbox += arenas->n_buckets * links->inbox_slot;
    }
    links->by_rank[rank] = links->n++;
    return DPB_OK;
}

static dpb_status make_links(struct links *links)
{
    const struct dpb_comm_args *args = &links->base->args;
    char *inbox = links->inbox;
    links->steps = links->host->alloc(steps_bytes(links));
    if (!links->steps)
        return DPB_NO_MEMORY;
    links->links = calloc(n_ranks(args), sizeof *links->links);
    links->by_rank = calloc(n_ranks(args), sizeof *links->by_rank);
    links->comers = calloc(n_ranks(args), sizeof *links->comers);
    if (!links->links || !links->by_rank || !links->comers)
        return links->host->fail(DPB_NO_MEMORY, "no memory for links to %u ranks", n_ranks(args));
    for (uint32_t rank = 0; rank < n_ranks(args); rank++) {
        links->by_rank[rank] = NONE;
        if (has_link(args, rank))
            DPB_TRY(make_link(links, rank, &inbox));
    }
    return DPB_OK;
}

static dpb_status open_doorbell(struct links *links)
{
    struct strategy *base = links->base;
    uint32_t n = n_ranks(&base->args);
    struct bell_page **pages = calloc(n, sizeof *pages);
    if (!pages)
        return links->host->fail(DPB_NO_MEMORY, "no memory for %u ranks", n);
    for (uint32_t rank = 0; rank < n; rank++)
        if (ps_is_here(&base->args, rank))
            pages[rank] = &base->signals.pages[rank]->bell;
    const struct doorbell_args args = {.host = links->host,
                                       .comm = &base->args,
                                       .name = "ps",
                                       .pages = pages,
                                       .rings_itself = base->args.comm_cores > 0 &&
                                                       base->args.role == DPB_WORKER};
    dpb_status status = doorbell_open(&args, &links->doorbell);
    free(pages);
    if (status == DPB_OK)
        base->signals.doorbell = links->doorbell;
    return status;
}

static dpb_status connect_mesh(struct links *links, struct mesh_transport *transport,
                               const struct mesh_peer *peers)
{
    const struct strategy *base = links->base;
    const struct dpb_arenas *arenas = &base->arenas;
    const struct dpb_layout *layout = &arenas->layout;
    uint64_t messages_bytes = 0;
    void *messages = base->coded ? coded_memory_of(base, &messages_bytes) : NULL;
    const struct mesh_memory memories[] = {
        {"the weights", arenas->weights, layout->n_elements * dpb_dtype_size(layout->weight_type)},
        {"the gradients", arenas->gradients,
         arenas->gradients ? layout->n_elements * dpb_dtype_size(layout->gradient_type) : 0},
        {"the messages", messages, messages_bytes},
        {"the inbox", links->inbox, links->inbox_bytes},
        {"the steps' parameters", links->steps, steps_bytes(links)}};
    const struct mesh_args args = {
        .host = links->host,
        .transport = transport,
        .name = "ps",
        .what = "the parameter servers",
        .kinds = kinds,
        .rank = base->args.rank,
        .keeper = 0,
        .peers = peers,
        .n_peers = links->n,
        .memories = memories,
        .n_memories = sizeof memories / sizeof memories[0],
        .bell = doorbell_fd(links->doorbell),
        .sink = {.owner = links, .expects = expects, .arrived = arrived}};
    return mesh_open(&args, &links->mesh);
}

static dpb_status open_mesh(struct links *links, struct mesh_transport *transport)
{
    const struct strategy *base = links->base;
    const struct dpb_layout *layout = &base->arenas.layout;
    size_t inbox_bytes = base->arenas.n_buckets * links->inbox_slot;
    size_t weight_bytes = layout->n_elements * dpb_dtype_size(layout->weight_type);
    struct mesh_peer *peers = calloc(links->n + 1, sizeof *peers);
    if (!peers) {
        transport->ops->close(transport, false);
        return links->host->fail(DPB_NO_MEMORY, "no memory for %u links", links->n);
    }
    for (uint32_t i = 0; i < links->n; i++) {
        struct link *link = &links->links[i];
        peers[i] = (struct mesh_peer){
            .rank = link->rank,
            .landings = {[STEP] = {link->step, STEP_BYTES},
                         [GRADIENTS] = {link->inbox, link->inbox ? inbox_bytes : 0},
                         [WEIGHTS] = {base->arenas.weights, weight_bytes},
                         [LOAD] = {base->arenas.weights, weight_bytes},
                         [MODEL] = {base->arenas.weights, weight_bytes}}};
    }
    dpb_status status = connect_mesh(links, transport, peers);
    free(peers);
    return status;
}

dpb_status links_open(struct strategy *base, struct mesh_transport *transport, void *inbox,
                      const struct links_memory *memory, struct links **made)
{
    const struct dpb_arenas *arenas = &base->arenas;
    struct links *links = calloc(1, sizeof *links);
    dpb_status status = DPB_OK;
    if (links) {
        links->host = base->host;
        links->base = base;
        links->slice_elements =
            slice_elements(&base->args, &arenas->layout, arenas->bucket_elements);
        links->inbox_slot = inbox_slot(&base->args, &arenas->layout, arenas->bucket_elements);
        links->inbox = inbox;
        links->inbox_bytes =
            links_inbox_bytes(&base->args, &arenas->layout, arenas->bucket_elements, memory);
        links->turn = (struct links_turn){arenas->gradients, 1, true};
        status = make_links(links);
        links->outbox = (char *)inbox + links->n * arenas->n_buckets * links->inbox_slot;
        if (status == DPB_OK)
            status = open_doorbell(links);
    } else {
        status = base->host->fail(DPB_NO_MEMORY, "no memory for links");
    }
    if (status == DPB_OK)
        status = open_mesh(links, transport);
    else
        transport->ops->close(transport, false);
    if (status == DPB_OK) {
        links->fds = calloc(1 + mesh_n_watched(links->mesh), sizeof *links->fds);
        if (!links->fds)
            status = base->host->fail(DPB_NO_MEMORY, "no memory for links");
    }
    if (status != DPB_OK) {
        links_close(links, false);
        return status;
    }
    *made = links;
    return DPB_OK;
}

void links_close(struct links *links, bool through)
{
    if (!links)
        return;
    mesh_close(links->mesh, through);
    links->base->signals.doorbell = NULL;
    doorbell_close(links->doorbell);
    for (uint32_t i = 0; i < links->n; i++)
        links->host->release(links->links[i].began_ns, times_bytes(links));
    links->host->release(links->steps, steps_bytes(links));
    free(links->fds);
    free(links->links);
    free(links->by_rank);
    free(links->comers);
    free(links);
}
