/*
 * links.c - the links of ps_cpu between ranks of different machines, and of ps_async between all
 * workers and servers: see ps.h. Each worker has a link to each shard elsewhere, which answers on
 * the same link.
 *
 * A worker pushes each shard's part of a bucket. The part lands in memory that the shard keeps for
 * this worker, at a place for each bucket. The place is free again when the worker has the bucket's
 * new weights; the worker pushes no part to it before. New weights land in the worker's arena: its
 * own gradients of the bucket have come, so the worker reads these weights no more. So no message
 * needs credits. Between ranks of one machine (links_memory.machines) the same messages have no
 * payload: the shard reads the gradients in the memory that the worker pushes from, and writes new
 * weights into the worker's arena.
 *
 *     worker -> server   STEP       parameters of a turn, before its first gradients; whether it
 *                                   pushes and fetches. ps_cpu: both, a turn is an exchange
 *     worker -> shard    GRADIENTS  the shard's slice of a bucket; with a codec a message of it,
 *                                   and in `word` the step of this message
 *     shard -> worker    WEIGHTS    the same slice, updated; with how long this worker's gradients
 *                                   waited for others'
 *                                   comm.codec_back: the answer of the bucket (ps_back.h)
 *     worker 0 -> server LOAD       all weights
 *     server -> worker 0 LOADED     they have come
 * and of ps_async alone
 *     worker -> server   SAY        that it meets the others, or that nobody waits for it: `word`
 *     server -> worker   MODEL      the server's slices, once all workers meet
 *     server -> worker   SAY        that the exchange under way will not count, or that worker 0
 *                                   may load: `word`
 *     server -> worker   AGE        of the gradients of an exchange, in `word`
 */
#include "comm/ps_cpu/links_parts.h"

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

void links_begin_turn(struct links *links)
{
    const struct strategy *base = links->base;
    const struct links_news news = {base->step, links->turn.gradients != NULL, links->turn.fetches};
    const struct mesh_label label = links_step_label(links->n_turns++);
    links_write_step(links->steps, &news);
    links->n_pushes += news.pushes;
    links->n_fetches += news.fetches;
    for (uint32_t i = 0; i < links->n && base->args.n_servers > 0; i++)
        if (links->links[i].is_shard)
            mesh_send(links->mesh, i, &label, links->steps);
}

/* The payload of a push of a bucket to a shard, whose slice begins at element `at`. */
static const void *payload_of(const struct links *links, uint64_t bucket, uint64_t at,
                              struct mesh_label *label)
{
    const struct strategy *base = links->base;
    const size_t size = dpb_dtype_size(base->arenas.layout.gradient_type);
    if (!base->args.codec)
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
        links_begin_turn(links);
    for (uint32_t i = 0; i < links->n; i++) {
        struct link *link = &links->links[i];
        if (!link->is_shard)
            continue;
        struct dpb_range slice = ps_slice(args, link->rank, bucket, length);
        struct mesh_label label = links_slice_label(links, false, link->rank, link->pushed++);
        link->asked += links->turn.fetches;
        const void *payload = payload_of(links, bucket, slice.begin, &label);
        links->host->count_bytes(label.bytes);
        label = links_as_sent(link, label);
        mesh_send(links->mesh, i, &label, payload);
    }
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
        struct mesh_label label = links_slice_label(links, true, args->rank, link->given++);
        link->freed++;
        link->turns += bucket + 1 == base->arenas.n_buckets;
        label.word = (uint64_t)(pushed_ns - link->came_ns[bucket]);
        const void *payload = NULL;
        if (!links->memory.answers) {
            payload = strategy_weights(base, args->rank, begin + slice.begin);
        } else if (label.bytes > 0) {
            const struct coded_message *answer = links_answer_at(links, label.at_bytes);
            label.bytes = answer->bytes;
            payload = answer->content;
        }
        mesh_send(links->mesh, i, &label, payload);
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

/* ---- messages that are here ---------------------------------------------------------------- */

/* Whether the message of the n-th exchange, from 0, is here. */
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

int64_t links_push_came_ns(const struct links *links, uint32_t worker, uint64_t bucket)
{
    return links_link_to(links, worker)->came_ns[bucket];
}

int64_t links_push_began_ns(const struct links *links, uint32_t worker, uint64_t bucket)
{
    return links_link_to(links, worker)->began_ns[bucket];
}

void *links_gradients(const struct links *links, uint32_t worker, uint64_t bucket, uint64_t at)
{
    const struct strategy *base = links->base;
    const struct link *link = links_link_to(links, worker);
    const size_t size = dpb_dtype_size(base->arenas.layout.gradient_type);
    if (!link->shares)
        return link->inbox + links_inbox_at(links, bucket) + at * size;
    const uint64_t length = pipeline_bucket_length(&base->pipeline, bucket);
    const struct dpb_range slice = ps_slice(&base->args, base->args.rank, bucket, length);
    return link->pushed_from + (bucket * base->arenas.bucket_elements + slice.begin + at) * size;
}

const struct coded_message *links_message(const struct links *links, uint32_t worker,
                                          uint64_t bucket)
{
    return links_message_at(links_link_to(links, worker), links_inbox_at(links, bucket));
}

bool links_updated(const struct links *links, uint32_t shard, uint64_t bucket)
{
    return !links->turn.fetches || has_come(links, shard, WEIGHTS, links->n_fetches - 1, bucket);
}

/* A bucket is under way from its push on, but for the time in which the shard waited for other
 * workers. The time of this wait is not known here to the part of a way: the wait is taken to be
 * just before the weights came. Without a push all buckets are asked for with the last one. */
void links_report(const struct links *links, uint32_t shard, uint64_t bucket)
{
    const struct link *link = links_link_to(links, shard);
    const uint64_t from = links->turn.gradients ? bucket : links->base->arenas.n_buckets - 1;
    int64_t ready_ns = signals_latest_ns(&links->base->signals, ps_pushed(links->base),
                                         strategy_self(links->base), from);
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
    return links_read_step(links_link_to(links, 0)->step).step;
}

/* ---- moving and waiting -------------------------------------------------------------------- */

/* Worker 0's weights are here: worker 0 waits for LOADED. */
static void answer_load(struct links *links)
{
    uint32_t number = links->by_rank[0];
    if (links->base->args.role != DPB_SERVER || number == NONE)
        return;
    struct link *link = &links->links[number];
    if (mesh_arrived(links->mesh, number, LOAD) == link->n_loads)
        return;
    struct mesh_label label = links_load_label(links, LOADED, link->n_loads++);
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
    return mesh_wait(links->mesh, what);
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
                            .bytes = links_load_label(links, LOAD, 0).bytes,
                            .purpose = "the server to take the weights"};
    for (uint32_t i = 0; i < links->n; i++) {
        struct mesh_label label = links_load_label(links, LOAD, links->links[i].n_loads++);
        mesh_send(links->mesh, i, &label, arenas->weights);
    }
    for (const struct link *link; (link = awaited_load(links));) {
        what.peer = link->rank;
        DPB_TRY(links_advance(links, &what));
    }
    return DPB_OK;
}
