/*
 * write.h - text that a trained network writes: byte by byte, each drawn by the probabilities that
 * the network gives it after the bytes before. It runs in this process, without ranks.
 */
#ifndef DPB_STUDY_EVAL_WRITE_H
#define DPB_STUDY_EVAL_WRITE_H

#include <stdint.h>
#include <stdio.h>

#include "plan/experiment.h"

struct dpb_write_args {
    int64_t n_bytes;
    const char *prompt; /* the text before; at least one byte */
    /* Divides the logits: below 1 likely bytes become likelier; 0: always the likeliest byte, the
     * first of several. */
    double temperature;
};

/*
 * Writes n_bytes to `out`, as they come, by the weights of checkpoint.load. The network sees at
 * most the last data.length bytes. A byte's draw depends on run.seed and its number alone.
 * DPB_UNSUPPORTED, before anything is written: the data are not bytes, or a position of the network
 * depends on later ones. DPB_DATA: the network gives numbers that are not finite. Blocks.
 */
dpb_status dpb_write_text(struct dpb_experiment *experiment, const struct dpb_write_args *args,
                          FILE *out);

#endif
