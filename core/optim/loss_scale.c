/* loss_scale.c - see loss_scale.h. */
#include "optim/loss_scale.h"

static const double first = 0x1p16, most = 0x1p32, least = 1.0;

void dpb_loss_scale_init(struct dpb_loss_scale *scale, double fixed)
{
    *scale = (struct dpb_loss_scale){.scale = fixed > 0 ? fixed : first, .fixed = fixed > 0};
}

bool dpb_loss_scale_step(struct dpb_loss_scale *scale, bool overflow)
{
    scale->skipped += overflow;
    scale->clean = overflow ? 0 : scale->clean + 1;
    if (scale->fixed)
        return true;
    if (overflow) {
        const bool smaller = scale->scale > least;
        scale->scale = smaller ? scale->scale / 2 : least;
        return smaller;
    }
    if (scale->clean < DPB_LOSS_SCALE_CLEAN)
        return true;
    scale->clean = 0;
    scale->scale = scale->scale < most ? scale->scale * 2 : most;
    return true;
}
