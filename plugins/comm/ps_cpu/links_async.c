/* links_async.c - functions of links for ps_async beside ps_cpu's exchanges: see ps.h. */
#include "comm/ps_cpu/links_parts.h"

/* ---- servers, one worker at a time --------------------------------------------------------- */

uint32_t links_next_turn(struct links *links, struct links_news *news)
{
    if (links->n_taken == links->n_come)
        return NONE;
    const uint32_t worker = links->comers[links->n_taken % links->n];
    const struct link *link = links_link_to(links, worker);
    if (mesh_arrived(links->mesh, links->by_rank[worker], STEP) <= link->turns)
        return NONE; /* by RDMA it may come behind the gradients */
    *news = links_read_step(link->step);
    links->n_taken++;
    return worker;
}

void links_end_turn(struct links *links, uint32_t worker, bool pushes)
{
    struct link *link = links_link_to(links, worker);
    link->turns++;
    link->freed += pushes ? links->base->arenas.n_buckets : 0;
}

void links_keep_sent(struct links *links, uint32_t worker)
{
    const struct strategy *base = links->base;
    const struct dpb_comm_args *args = &base->args;
    const dpb_dtype type = base->arenas.layout.weight_type;
    const struct link *link = links_link_to(links, worker);
    for (uint64_t bucket = 0; bucket < base->arenas.n_buckets; bucket++) {
        const uint64_t length = pipeline_bucket_length(&base->pipeline, bucket);
        const struct dpb_range slice = ps_slice(args, args->rank, bucket, length);
        const uint64_t begin = bucket * base->arenas.bucket_elements + slice.begin;
        void *to = link->shares ? strategy_weights(base, worker, begin)
                                : link->outbox + links_place_of(links, bucket, type);
        links->host->vec->copy(type, to, strategy_weights(base, args->rank, begin),
                               slice.end - slice.begin);
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
    struct mesh_label label = model ? links_model_label(links, self, link->models++)
                                    : links_slice_label(links, true, self, link->given++);
    label = links_as_sent(link, label);
    label.word = model ? 0 : (uint64_t)waited_ns;
    mesh_send(links->mesh, number, &label,
              link->shares ? NULL : link->outbox + links_place_of(links, bucket, type));
    return true;
}

static bool tell(const struct links *links, uint32_t rank, uint32_t kind, uint64_t *n,
                 uint64_t word)
{
    const uint32_t number = links->by_rank[rank];
    if (mesh_room(links->mesh, number) < 2)
        return false;
    const struct mesh_label label = links_word_label(kind, (*n)++, word);
    mesh_send(links->mesh, number, &label, NULL);
    return true;
}

bool links_tell_age(struct links *links, uint32_t worker, uint64_t age)
{
    return tell(links, worker, AGE, &links_link_to(links, worker)->n_ages, age);
}

bool links_tell_word(struct links *links, uint32_t worker, uint64_t word)
{
    return tell(links, worker, SAY, &links_link_to(links, worker)->said, word);
}

uint64_t links_said(const struct links *links, uint32_t rank)
{
    return __atomic_load_n(&links_link_to(links, rank)->word, __ATOMIC_RELAXED);
}

dpb_status links_await_word(struct links *links, uint64_t word)
{
    struct dpb_wait what = {.bucket = UINT64_MAX,
                            .step = links->base->step.step,
                            .purpose = "the server to be ready for the weights"};
    for (uint32_t i = 0; i < links->n; i++)
        while (links_said(links, what.peer = links->links[i].rank) != word)
            DPB_TRY(links_advance(links, &what));
    return DPB_OK;
}

/* ---- workers ------------------------------------------------------------------------------- */

uint64_t links_age(const struct links *links, uint32_t shard, uint64_t push)
{
    return links_link_to(links, shard)->ages[push % LINKS_AGES];
}

bool links_aged(const struct links *links, uint32_t shard)
{
    return !links->turn.gradients ||
           mesh_arrived(links->mesh, links->by_rank[shard], AGE) >= links->n_pushes;
}

void links_ask(struct links *links)
{
    for (uint32_t i = 0; i < links->n; i++)
        links->links[i].asked += links->base->arenas.n_buckets;
    links_begin_turn(links);
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
        const struct mesh_label label = links_word_label(SAY, links->links[i].said++, word);
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
