/* gpus_report.c - see gpus_report.h. */
#include "record/gpus_report.h"

#include <string.h>

#include "base/json.h"
#include "record/facts.h"

static const char time_slices[] = "time slices", mixed[] = "mixed";

const char *dpb_sharing_name(const struct dpb_sharing *sharing)
{
    if (!sharing->known)
        return NULL;
    return sharing->service[0] != '\0' ? sharing->service : time_slices;
}

bool dpb_gpus_same(struct dpb_board *board, uint32_t a, uint32_t b)
{
    const struct dpb_status_page *one = dpb_board_page(board, a), *other = dpb_board_page(board, b);
    return one->gpu[0] != '\0' && strcmp(one->gpu, other->gpu) == 0 &&
           strcmp(one->host, other->host) == 0;
}

json_t *dpb_gpus_to_json(struct dpb_board *board)
{
    const uint32_t n_ranks = board ? dpb_board_ranks(board) : 0;
    const char *all = NULL;
    uint32_t most = 0;
    bool time_sliced = false;
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        uint32_t n = 0;
        if (!dpb_gpus_same(board, rank, rank))
            continue;
        for (uint32_t other = 0; other < n_ranks; other++)
            n += dpb_gpus_same(board, rank, other);
        const struct dpb_sharing *sharing = &dpb_board_page(board, rank)->sharing;
        const char *name = dpb_sharing_name(sharing);
        const bool same = most == 0 || (all && name ? strcmp(all, name) == 0 : all == name);
        all = same ? name : mixed;
        time_sliced |= n > 1 && sharing->service[0] == '\0';
        most = n > most ? n : most;
    }
    return most == 0 ? json_null()
                     : json_pack("{s:I, s:s?, s:b}", "most_workers", (json_int_t)most, "sharing",
                                 all, "time_sliced", time_sliced);
}

void dpb_gpus_warn(const json_t *gpus, json_t *warnings)
{
    if (dpb_json_true(gpus, "time_sliced"))
        dpb_warnings_add(
            warnings, "gpu_shared",
            "%.0f workers share a GPU and take turns%s: the rate says little of "
            "workers that run at once (docs/measuring.md)",
            dpb_json_number(gpus, "most_workers"),
            dpb_json_is(gpus, "sharing", time_slices) ? "" : ", as far as the driver tells");
}

void dpb_gpus_print(const json_t *gpus, FILE *out)
{
    if (dpb_json_number(gpus, "most_workers") > 1) /* false for NaN */
        fprintf(out, "  %-13s %.0f workers on one: %s%s\n", "GPUs",
                dpb_json_number(gpus, "most_workers"),
                dpb_json_text(gpus, "sharing", "how they share it is not known"),
                dpb_json_true(gpus, "time_sliced") ? "; TIME-SLICED: workers take turns" : "");
}
