/*
 * curves.h - the lines of a page's figures, as its script reads them: [[x, y], ...], a median with
 * its band [[x, y, low, high], ...]. Of a long line each column has its least and largest point.
 * All values are @owned.
 */
#ifndef DPB_STUDY_PAGE_CURVES_H
#define DPB_STUDY_PAGE_CURVES_H

#include <jansson.h>
#include <stddef.h>

/* The runs of a row that the page draws: one, or one of each of several seeds. */
struct dpb_drawn {
    const json_t *one;       /* NULL: there is none */
    const json_t **of_seeds; /* @owned */
    size_t n;
};

/* The time of each step. */
json_t *dpb_curves_steps(const json_t *run);
/* Loss and accuracy, each by samples and by seconds, and how they are drawn. Over several seeds a
 * line by samples is the median; seeds share no seconds. */
json_t *dpb_curves_training(const struct dpb_drawn *losses, const struct dpb_drawn *accuracies);
/* What run.monitor saw of machines and GPUs. */
json_t *dpb_curves_monitor(const json_t *run);

#endif
