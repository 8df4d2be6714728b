/* save_points.c - see save_points.h. */
#include "plan/save_points.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"

dpb_status dpb_save_points_make(const struct dpb_settings *settings, const char *origin,
                                struct dpb_save_points *points)
{
    *points = (struct dpb_save_points){.every = (uint64_t)settings->checkpoint.every};
    uint64_t last = 0;
    for (const char *at = settings->checkpoint.at; *at;) {
        char *end;
        unsigned long long step = strtoull(at, &end, 10);
        end += strspn(end, " ");
        bool dangling = *end == ',' && end[1] == '\0';
        if (at[strspn(at, " ")] == '-' || dangling || (*end != ',' && *end != '\0') ||
            step <= last || step > INT64_MAX)
            return dpb_fail(DPB_USAGE,
                            "%s: checkpoint.at: '%s' is not a rising list of steps, as in 100,200",
                            origin, settings->checkpoint.at);
        if (points->n == DPB_SAVE_POINTS)
            return dpb_fail(DPB_USAGE,
                            "%s: checkpoint.at: more than %d steps; try checkpoint.every", origin,
                            DPB_SAVE_POINTS);
        points->at[points->n++] = last = step;
        at = *end == ',' ? end + 1 : end;
    }
    return DPB_OK;
}

bool dpb_save_points_due(const struct dpb_save_points *points, uint64_t step)
{
    bool due = points->every > 0 && step % points->every == 0;
    for (uint32_t i = 0; i < points->n && !due; i++)
        due = points->at[i] == step;
    return due;
}

bool dpb_snapshot_path(const char *save, uint64_t step, char *path, size_t capacity)
{
    static const char extension[] = ".safetensors";
    bool has = dpb_ends_on(save, extension);
    int stem = (int)(strlen(save) - (has ? strlen(extension) : 0));
    int written =
        snprintf(path, capacity, "%.*s-step%" PRIu64 "%s", stem, save, step, has ? extension : "");
    return written >= 0 && (size_t)written < capacity;
}

void dpb_kept_path(const struct dpb_board_kept *kept, uint32_t i, char *path, size_t capacity)
{
    snprintf(path, capacity, "/proc/%d/fd/%d", (int)kept->launcher, (int)kept->files[i]);
}
