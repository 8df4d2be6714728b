/*
 * made.h - a profile (dpbench.profile/1) while it is made: makers set its times and add its
 * tensors; from it come the document, the document's text, and the line that says what was made.
 *
 * Makers call in the order of the tensors. Times are in ns, unrounded.
 */
#ifndef DPB_EMULATE_MADE_H
#define DPB_EMULATE_MADE_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "dpbench/status.h"

enum { DPB_MADE_TEXT = 512, DPB_MADE_WARMUP = 16 };

/* A profile that is being made. Strings are @borrowed unless they are arrays. */
struct dpb_made {
    const char *accelerator, *model, *precision, *kind;
    char source[DPB_MADE_TEXT];
    char assumed[DPB_MADE_TEXT]; /* for the line on stderr */
    uint32_t batch;              /* samples of a step of one worker */
    double macs;                 /* forward multiply-accumulates of one sample; 0: unknown */
    double forward_ns, backward_ns, spread;
    double warmup[DPB_MADE_WARMUP]; /* the first steps' times over the mean; [n_warmup] */
    size_t n_warmup;
    double update_elements_per_s; /* 0: unknown */
    struct dpb_made_tensor {
        char *name; /* @owned */
        uint64_t n_elements;
        double ready_ns; /* since the begin of backward */
    } * tensors;         /* @owned; in the order of backward; [n_tensors] */
    size_t n_tensors, capacity;
    json_t *from; /* @owned; the document that strings above may be of; NULL: none */
};

dpb_status dpb_made_add(struct dpb_made *made, const char *name, uint64_t n_elements,
                        double ready_ns);
/* Multiplies the times of all tensors. */
void dpb_made_scale(struct dpb_made *made, double factor);
/* The document. Refuses one that a reader of profiles would refuse, by that reader's words.
 * *document is @owned. */
dpb_status dpb_made_document(const struct dpb_made *made, json_t **document);
void dpb_made_release(struct dpb_made *made); /* accepts zeros */

/* Writes the document with one tensor in a line. */
void dpb_profile_write(const json_t *document, FILE *out);
/* Prints it for people: the step, the rate, when gradients are final. The document is one that
 * dpb_accelerator_take takes. */
void dpb_profile_show(const json_t *document, FILE *out);

#endif
