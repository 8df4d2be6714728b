/* links_messages.c - labels sent and expected: see links_parts.h; links.c lists the messages. */
#include <string.h>

#include "comm/ps_cpu/links_parts.h"
#include "lib/tcp/wire.h"

enum { PUSHES = 1, FETCHES = 2 };

/* ---- messages ------------------------------------------------------------------------------ */

void links_write_step(uint8_t bytes[STEP_BYTES], const struct links_news *news)
{
    const struct dpb_step *step = &news->step;
    uint64_t words[STEP_BYTES / 8] = {step->step, 0, 0, step->seal,
                                      (news->pushes ? PUSHES : 0) | (news->fetches ? FETCHES : 0)};
    memcpy(&words[1], &step->learning_rate, 8);
    memcpy(&words[2], &step->scale, 8);
    for (int i = 0; i < STEP_BYTES / 8; i++)
        bytes = wire_put(bytes, words[i], 8);
}

struct links_news links_read_step(const uint8_t bytes[STEP_BYTES])
{
    uint64_t words[STEP_BYTES / 8];
    struct dpb_step step = {0};
    for (int i = 0; i < STEP_BYTES / 8; i++)
        words[i] = wire_get(&bytes, 8);
    step.step = words[0];
    memcpy(&step.learning_rate, &words[1], 8);
    memcpy(&step.scale, &words[2], 8);
    step.seal = words[3];
    return (struct links_news){step, words[4] & PUSHES, words[4] & FETCHES};
}

struct mesh_label links_slice_label(const struct links *links, bool weights, uint32_t shard,
                                    uint64_t n)
{
    const struct strategy *base = links->base;
    const struct dpb_layout *layout = &base->arenas.layout;
    uint64_t bucket = n % base->arenas.n_buckets;
    uint64_t length = pipeline_bucket_length(&base->pipeline, bucket);
    struct dpb_range slice = ps_slice(&base->args, shard, bucket, length);
    size_t size = dpb_dtype_size(weights ? layout->weight_type : layout->gradient_type);
    uint64_t at = (bucket * base->arenas.bucket_elements + slice.begin) * size;
    const bool coded = base->args.codec && !weights, answers = weights && links->memory.answers;
    const uint64_t bytes = (slice.end - slice.begin) * size;
    if (answers) {
        const uint64_t head = sizeof(struct coded_message), slot = links->memory.answer_slot;
        return (struct mesh_label){.kind = WEIGHTS,
                                   .bucket = (uint32_t)bucket,
                                   .exchange = n / base->arenas.n_buckets,
                                   .at_bytes = bucket * slot + head,
                                   .bytes = bytes > 0 ? slot - head : 0,
                                   .or_less = true};
    }
    return (struct mesh_label){.kind = weights ? WEIGHTS : GRADIENTS,
                               .bucket = (uint32_t)bucket,
                               .exchange = n / base->arenas.n_buckets,
                               .at_bytes = weights ? at : links_inbox_at(links, bucket),
                               .bytes = coded && bytes > 0 ? coded_content_bytes(base, 0) : bytes,
                               .or_less = coded};
}

struct mesh_label links_as_sent(const struct link *link, struct mesh_label label)
{
    if (link->shares)
        label.at_bytes = label.bytes = 0;
    return label;
}

struct mesh_label links_step_label(uint64_t turn)
{
    return (struct mesh_label){.kind = STEP, .exchange = turn, .bytes = STEP_BYTES};
}

struct mesh_label links_word_label(uint32_t kind, uint64_t n, uint64_t word)
{
    return (struct mesh_label){.kind = kind, .exchange = n, .word = word};
}

struct mesh_label links_model_label(const struct links *links, uint32_t shard, uint64_t n)
{
    struct mesh_label label = links_slice_label(links, true, shard, n);
    label.kind = MODEL;
    return label;
}

struct mesh_label links_load_label(const struct links *links, uint32_t kind, uint64_t n)
{
    const struct dpb_layout *layout = &links->base->arenas.layout;
    uint64_t bytes = layout->n_elements * dpb_dtype_size(layout->weight_type);
    return (struct mesh_label){.kind = kind, .exchange = n, .bytes = kind == LOAD ? bytes : 0};
}

/* ---- the mesh's questions ------------------------------------------------------------------ */

static bool expects_gradients(const struct links *links, const struct link *link, uint64_t n,
                              struct mesh_label *label)
{
    /* Its place is free: ps_cpu has given the weights of the exchange before, or the turn before
     * has ended. */
    if (!link->is_worker || n >= link->freed + links->base->arenas.n_buckets)
        return false;
    *label = links_as_sent(link, links_slice_label(links, false, links->base->args.rank, n));
    if (link->began_ns[label->bucket] <= link->came_ns[label->bucket])
        link->began_ns[label->bucket] = links->host->now_ns();
    return true;
}

bool links_expects(void *links_, uint32_t number, uint32_t kind, uint64_t n,
                   struct mesh_label *label)
{
    const struct links *links = links_;
    const struct link *link = &links->links[number];
    const struct dpb_comm_args *args = &links->base->args;
    bool serves = args->role == DPB_SERVER && link->is_worker;
    switch (kind) {
    case STEP:
        *label = links_step_label(n);
        return serves && n == link->turns;
    case GRADIENTS:
        return expects_gradients(links, link, n, label);
    case WEIGHTS:
        *label = links_as_sent(link, links_slice_label(links, true, link->rank, n));
        return link->is_shard && n < link->asked;
    case LOAD:
        *label = links_load_label(links, LOAD, n);
        return serves && link->rank == 0 && n == link->n_loads;
    case LOADED:
        *label = links_load_label(links, LOADED, n);
        return link->is_shard && n < link->n_loads;
    case SAY:
        *label = links_word_label(SAY, n, 0);
        return serves || link->is_shard;
    case MODEL:
        *label = links_as_sent(link, links_model_label(links, link->rank, n));
        return link->is_shard && n < link->models;
    case AGE:
        *label = links_word_label(AGE, n, 0);
        return link->is_shard && n < link->pushed;
    default:
        return false;
    }
}

static void note_comer(struct links *links, const struct link *link)
{
    links->comers[links->n_come++ % links->n] = link->rank;
}

struct coded_message *links_answer_at(const struct links *links, uint64_t at_bytes)
{
    return (struct coded_message *)(void *)(links->memory.answers + at_bytes -
                                            sizeof(struct coded_message));
}

struct coded_message *links_message_at(const struct link *link, uint64_t at_bytes)
{
    return (struct coded_message *)(void *)(link->inbox + at_bytes - sizeof(struct coded_message));
}

/* The bytes of new weights, also where the message has no payload. */
static uint64_t slice_bytes(const struct links *links, const struct link *link,
                            const struct mesh_label *label)
{
    const uint64_t n = label->exchange * links->base->arenas.n_buckets + label->bucket;
    return links_slice_label(links, true, link->rank, n).bytes;
}

void links_arrived(void *links_, uint32_t number, const struct mesh_label *label)
{
    struct links *links = links_;
    struct link *link = &links->links[number];
    const int64_t now_ns = links->host->now_ns();
    switch (label->kind) {
    case STEP:
        if (!links_read_step(link->step).pushes)
            note_comer(links, link);
        return;
    case GRADIENTS:
        link->came_ns[label->bucket] = now_ns;
        if (links->base->args.codec) {
            links_message_at(link, label->at_bytes)->bytes = label->bytes;
            links_message_at(link, label->at_bytes)->step = label->word;
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
        if (links->memory.answers && slice_bytes(links, link, label) > 0)
            links_answer_at(links, label->at_bytes)->bytes = label->bytes;
        break;
    default:
        return;
    }
    link->given_ns[label->bucket] = now_ns;
    link->waited_ns[label->bucket] = (int64_t)(label->word < INT64_MAX ? label->word : 0);
    if (links->base->args.n_servers > 0) /* a server counts nothing by itself */
        links->host->count_bytes(links->memory.answers ? label->bytes
                                                       : slice_bytes(links, link, label));
}
