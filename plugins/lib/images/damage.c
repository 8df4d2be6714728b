/*
 * damage.c - reports unreadable files. The first few are named, each once; all are counted. If
 * they are more than the data's owner allows, the run ends.
 */
#include <inttypes.h>
#include <stdio.h>

#include "images.h"

enum { SAID = 8 /* by name: a page of the status board holds 16 warnings */ };

struct first_damage {
    uint64_t n;
    struct {
        dpb_split split;
        uint64_t sample;
        char reason[REASON_BYTES];
    } files[SAID];
};

static size_t seen_bytes(const struct damage *damage, int split)
{
    return (size_t)(damage->set->n[split] / 64 + 1) * sizeof(uint64_t);
}

dpb_status damage_create(const struct image_set *set, double max_share, struct damage *damage)
{
    *damage = (struct damage){.set = set, .max_share = max_share};
    pthread_mutex_init(&damage->lock, NULL);
    damage->first = image_host->alloc(sizeof *damage->first);
    for (int split = 0; split < 2; split++) {
        damage->seen[split] = image_host->alloc(seen_bytes(damage, split));
        if (!damage->seen[split] || !damage->first) {
            damage_destroy(damage);
            return DPB_NO_MEMORY;
        }
    }
    return DPB_OK;
}

void damage_destroy(struct damage *damage)
{
    if (!damage->set)
        return;
    for (int split = 0; split < 2; split++)
        image_host->release(damage->seen[split], seen_bytes(damage, split));
    image_host->release(damage->first, sizeof *damage->first);
    pthread_mutex_destroy(&damage->lock);
    damage->set = NULL;
}

/* Keeps the first ones; whether this is among them. */
static bool remember(struct damage *damage, dpb_split split, uint64_t sample, const char *reason)
{
    pthread_mutex_lock(&damage->lock);
    struct first_damage *first = damage->first;
    bool kept = first->n < SAID;
    if (kept) {
        first->files[first->n].split = split;
        first->files[first->n].sample = sample;
        snprintf(first->files[first->n].reason, REASON_BYTES, "%s", reason);
        first->n++;
    }
    pthread_mutex_unlock(&damage->lock);
    return kept;
}

static dpb_status refuse(struct damage *damage, dpb_split split, uint64_t skipped, uint64_t most)
{
    char list[SAID * 300] = "", name[PATH_BYTES], text[PATH_BYTES];
    size_t length = 0;
    pthread_mutex_lock(&damage->lock);
    for (uint64_t i = 0; i < damage->first->n; i++) {
        damage->set->name_of(damage->set->context, damage->first->files[i].split,
                             damage->first->files[i].sample, name);
        length += (size_t)snprintf(list + length, sizeof list - length, "\n  %.120s: %s",
                                   printable(name, text), damage->first->files[i].reason);
    }
    pthread_mutex_unlock(&damage->lock);
    return image_host->fail(DPB_DATA,
                            "%s: %" PRIu64 " of the %" PRIu64 " images in %s cannot be read, and "
                            "data.max_corrupt = %g allows %" PRIu64 "; the first:%s",
                            damage->set->path, skipped, damage->set->n[split],
                            damage->set->splits[split], damage->max_share, most, list);
}

dpb_status damage_note(struct damage *damage, dpb_split split, uint64_t sample, const char *reason)
{
    uint64_t bit = UINT64_C(1) << sample % 64;
    if (atomic_fetch_or(&damage->seen[split][sample / 64], bit) & bit)
        return DPB_OK;
    uint64_t skipped = atomic_fetch_add(&damage->skipped[split], 1) + 1;
    if (remember(damage, split, sample, reason)) {
        char name[PATH_BYTES], text[PATH_BYTES];
        damage->set->name_of(damage->set->context, split, sample, name);
        image_host->warn("unreadable_image", "%s: %s; the next readable image takes its place",
                         printable(name, text), reason);
    }
    uint64_t n = damage->set->n[split];
    uint64_t most = (uint64_t)(damage->max_share * (double)n);
    if (most == 0 && damage->max_share > 0)
        most = 1;
    return skipped > most ? refuse(damage, split, skipped, most) : DPB_OK;
}
