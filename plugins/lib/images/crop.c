/*
 * crop.c - chooses the part of a picture that becomes the sample. In training: a part of random
 * area and aspect, ten tries, then a central one; in evaluation: the centre of the picture at a
 * fixed size. Both as torchvision's RandomResizedCrop and Resize with CenterCrop have them.
 *
 * Szegedy et al.: Going deeper with convolutions. CVPR 2015.
 */
#include <math.h>

#include "dpbench/random.h"
#include "images.h"

/* Values of the random counter's word `what`: the number of a try, or the flip. */
enum { TRIES = 10, FLIP = TRIES };

static struct dpb_random4 draw(const struct crop_key *key, uint32_t what)
{
    return dpb_random(key->seed, DPB_STREAM_AUGMENT, (uint32_t)key->sample, (uint32_t)key->epoch,
                      what, 0);
}

static double between(double low, double high, uint32_t bits)
{
    return low + (high - low) * (double)dpb_random_uniform(bits);
}

/* One of 0 .. n - 1. */
static uint32_t below(uint64_t n, uint32_t bits)
{
    return (uint32_t)(bits * n >> 32);
}

/* The whole height or width as far as the aspect allows, in the middle. */
static struct box central(const struct crop_options *options, uint32_t w, uint32_t h)
{
    double aspect = (double)w / h, box_w = w, box_h = h;
    if (aspect < options->aspect_min)
        box_h = fmax(1, rint(w / options->aspect_min));
    else if (aspect > options->aspect_max)
        box_w = fmax(1, rint(h * options->aspect_max));
    return (struct box){floor((w - box_w) / 2), floor((h - box_h) / 2), box_w, box_h};
}

static struct box random_box(const struct crop_options *options, const struct crop_key *key,
                             uint32_t w, uint32_t h)
{
    double low = log(options->aspect_min), high = log(options->aspect_max);
    for (uint32_t i = 0; i < TRIES; i++) {
        struct dpb_random4 r = draw(key, i);
        double area = (double)w * h * between(options->area_min, options->area_max, r.v[0]);
        double aspect = exp(between(low, high, r.v[1]));
        double box_w = rint(sqrt(area * aspect)), box_h = rint(sqrt(area / aspect));
        if (box_w < 1 || box_h < 1 || box_w > w || box_h > h)
            continue;
        uint32_t x = below((uint64_t)(w - box_w) + 1, r.v[2]);
        uint32_t y = below((uint64_t)(h - box_h) + 1, r.v[3]);
        return (struct box){x, y, box_w, box_h};
    }
    return central(options, w, h);
}

void crop_random(const struct crop_options *options, const struct crop_key *key, uint32_t w,
                 uint32_t h, struct crop *crop)
{
    crop->inner = crop->outer = random_box(options, key, w, h);
    crop->flip = (double)dpb_random_uniform(draw(key, FLIP).v[0]) < options->flip;
}

/* As if the picture were resized so that its tighter side has to / eval_ratio pixels, then cut to
 * `to` in the middle. Both at once are one stretch of a part, whose neighbours count. */
void crop_centre(const struct crop_options *options, struct dpb_shape to, uint32_t w, uint32_t h,
                 struct crop *crop)
{
    double resized_w = rint(to.w / options->eval_ratio);
    double resized_h = rint(to.h / options->eval_ratio);
    if (resized_w * h >= resized_h * w)
        resized_h = fmax(to.h, floor(resized_w * h / w));
    else
        resized_w = fmax(to.w, floor(resized_h * w / h));
    double left = rint((resized_w - to.w) / 2), top = rint((resized_h - to.h) / 2);
    double step_x = w / resized_w, step_y = h / resized_h;
    crop->inner = (struct box){left * step_x, top * step_y, to.w * step_x, to.h * step_y};
    crop->outer = (struct box){0, 0, w, h};
    crop->flip = false;
}
