/* ring_check.c - see ring_state.h: which bytes travel when, and labels that are refused. */
#include <stdio.h>

#include "lib/ring/ring_state.h"

/* ---- which bytes travel when --------------------------------------------------------------- */

static struct dpb_range slice_range(const struct ring *ring, const struct flight *flight,
                                    uint32_t slice)
{
    uint64_t n = n_members(ring);
    return (struct dpb_range){flight->n * slice / n, flight->n * (slice + 1) / n};
}

uint32_t ring_count_chunks(const struct ring *ring, const struct flight *flight, uint32_t slice)
{
    struct dpb_range range = slice_range(ring, flight, slice);
    return (uint32_t)((range.end - range.begin + ring->chunk_elements - 1) / ring->chunk_elements);
}

struct mesh_label ring_label(const struct ring *ring, const struct flight *flight, uint32_t slice,
                             uint32_t round, uint32_t chunk)
{
    struct dpb_range range = slice_range(ring, flight, slice);
    const bool partial = reduces(ring, round) || is_given(flight);
    uint64_t size = dpb_dtype_size(is_given(flight)       ? ring->args.shards.type
                                   : reduces(ring, round) ? ring->args.type
                                                          : ring->gathered.type);
    uint64_t begin = range.begin + chunk * ring->chunk_elements, rest = range.end - begin;
    uint64_t n = rest < ring->chunk_elements ? rest : ring->chunk_elements;
    return (struct mesh_label){.kind = partial ? RING_PARTIAL : RING_SUM,
                               .bucket = (uint32_t)flight->bucket,
                               .exchange = ring->sums.step,
                               .at_bytes = (flight->begin + begin) * size,
                               .bytes = n * size,
                               .word = (uint64_t)round << 32 | chunk};
}

/* ---- refusing ------------------------------------------------------------------------------ */

static const char *target_of(const struct mesh_label *label)
{
    return label->kind == RING_PARTIAL ? "inbox" : "arena";
}

dpb_status ring_refuse(const struct ring *ring, const struct mesh_label *label,
                       const char *expected)
{
    return ring->args.host->fail(
        DPB_FAILED,
        "rank %u sent exchange %llu, bucket %u, round %u, chunk %u: %llu bytes for the %s at byte "
        "%llu; rank %u expected %s: the two do not run the same training",
        ring_previous(&ring->args.members), (unsigned long long)label->exchange, label->bucket,
        round_of(label), chunk_of(label), (unsigned long long)label->bytes, target_of(label),
        (unsigned long long)label->at_bytes, ring_own(&ring->args.members), expected);
}

dpb_status ring_check_label(const struct ring *ring, const struct flight *flight,
                            const struct mesh_label *label)
{
    char text[128];
    uint32_t round = round_of(label), chunk = chunk_of(label);
    if (round >= n_rounds(ring)) {
        snprintf(text, sizeof text, "rounds below %u", n_rounds(ring));
        return ring_refuse(ring, label, text);
    }
    if (round < flight->first_round) {
        snprintf(text, sizeof text, "rounds from %u on", flight->first_round);
        return ring_refuse(ring, label, text);
    }
    uint32_t slice = incoming_slice(ring, round);
    if (chunk >= ring_count_chunks(ring, flight, slice)) {
        snprintf(text, sizeof text, "chunks below %u in that round",
                 ring_count_chunks(ring, flight, slice));
        return ring_refuse(ring, label, text);
    }
    struct mesh_label wanted = ring_label(ring, flight, slice, round, chunk);
    if (label->kind == wanted.kind && label->bytes == wanted.bytes &&
        (label->kind == RING_PARTIAL || label->at_bytes == wanted.at_bytes))
        return DPB_OK;
    int n = snprintf(text, sizeof text, "%llu bytes for the %s", (unsigned long long)wanted.bytes,
                     target_of(&wanted));
    if (wanted.kind == RING_SUM)
        snprintf(text + n, sizeof text - (size_t)n, " at byte %llu",
                 (unsigned long long)wanted.at_bytes);
    return ring_refuse(ring, label, text);
}

dpb_status ring_check_early(const struct ring *ring, const struct mesh_label *label)
{
    char text[128];
    bool later = !ring->sums.begun || label->exchange == ring->sums.step + 1 ||
                 (label->exchange == ring->sums.step && label->bucket >= ring->sums.posted);
    if (later && label->bucket < ring->args.n_buckets && label->kind == RING_PARTIAL)
        return DPB_OK;
    snprintf(text, sizeof text, "buckets %llu to %llu of exchange %llu",
             (unsigned long long)ring->sums.finished, (unsigned long long)ring->args.n_buckets - 1,
             (unsigned long long)ring->sums.step);
    return ring_refuse(ring, label, text);
}

dpb_status ring_check_slot(const struct ring *ring, const struct mesh_label *label)
{
    const struct ring_memory *memory = &ring->args.memory;
    bool whole = label->at_bytes % memory->slot_bytes == 0 && label->bytes > 0 &&
                 label->bytes <= memory->slot_bytes;
    if (whole && label->at_bytes / memory->slot_bytes < memory->n_slots &&
        !ring->slots[slot_of(ring, label)].taken)
        return DPB_OK;
    return ring_refuse(ring, label, "partial sums in a slot of the inbox that is free");
}

static bool are_lent(const struct ring *ring, const struct mesh_label *label)
{
    uint64_t slots = label->word;
    if (slots == 0 || label->bucket >= n_groups(ring))
        return false;
    while (slots != 0) {
        uint32_t slot = take_slot(label->bucket, &slots);
        if (slot >= ring->args.memory.n_slots || !ring->slots[slot].lent)
            return false;
    }
    return true;
}

dpb_status ring_check_credit(const struct ring *ring, uint32_t link, const struct mesh_label *label)
{
    if (link == NEXT && are_lent(ring, label))
        return DPB_OK;
    return ring->args.host->fail(
        DPB_FAILED,
        "rank %u sent a credit for slots %llx behind slot %llu of its inbox, of which rank %u has "
        "not used all: the two do not run the same training",
        link == NEXT ? ring_next(&ring->args.members) : ring_previous(&ring->args.members),
        (unsigned long long)label->word, (unsigned long long)label->bucket * 64,
        ring_own(&ring->args.members));
}

dpb_status ring_see(const struct ring *ring, struct flight *flight, const struct mesh_label *label)
{
    uint32_t bit = round_of(label) * ring->max_chunks + chunk_of(label);
    uint64_t mask = UINT64_C(1) << (bit % 64);
    if (flight->seen[bit / 64] & mask)
        return ring_refuse(ring, label, "it once, and had it");
    flight->seen[bit / 64] |= mask;
    return DPB_OK;
}
