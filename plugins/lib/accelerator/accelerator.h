/*
 * accelerator.h - a profile: how long an accelerator takes for a model, and when in backward the
 * gradients of each tensor are final. A document dpbench.profile/1 (schemas/profile.json), made by
 * `dpbench profile`. Device `emulated`, model `profile` and `dpbench predict` read it.
 */
#ifndef DPB_PLUGINS_LIB_ACCELERATOR_H
#define DPB_PLUGINS_LIB_ACCELERATOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DPB_ACCELERATOR_WHY = 512, DPB_ACCELERATOR_TENSORS = 1 << 13 };

struct dpb_accelerator_tensor {
    const char *name;
    uint64_t n_elements;
    int64_t ready_ns; /* since the begin of backward */
};

struct dpb_accelerator {
    json_t *document; /* @owned; the strings below are its */
    const char *name, *model, *precision, *source;
    const char *kind;                /* "measured", "published", "estimated" */
    uint32_t batch;                  /* samples of a step of one worker */
    uint64_t macs;                   /* forward multiply-accumulates of one sample; 0: unknown */
    int64_t forward_ns, backward_ns; /* means of a step */
    double spread;                   /* standard deviation of a step's computing over its mean */
    double common;  /* of that variance, the part that all passes of a step have alike */
    double *warmup; /* the first steps' times over the mean; @owned; [n_warmup] */
    size_t n_warmup;
    double update_elements_per_s;           /* of the optimizer on the accelerator; 0: unknown */
    struct dpb_accelerator_tensor *tensors; /* @owned; in the order of backward; [n_tensors] */
    uint32_t n_tensors;
    uint64_t n_parameters; /* of all tensors */
};

/*
 * Reads a profile: a file, or the name of one that came with dpbench ("v100_resnet50"). With /N
 * behind it ("v100_resnet50/64", N up to 9999) tensors have an N-th of their elements, rounded up,
 * and take the same times: for exchanges that two cores can carry, over links of an N-th. False,
 * with the reason in `why` and nothing to release: the file cannot be read, or is no profile.
 */
bool dpb_accelerator_read(const char *file, struct dpb_accelerator *made,
                          char why[DPB_ACCELERATOR_WHY]);
/* The same from a document, of which it keeps a reference; `file` is for messages. */
bool dpb_accelerator_take(json_t *document, const char *file, struct dpb_accelerator *made,
                          char why[DPB_ACCELERATOR_WHY]);
void dpb_accelerator_release(struct dpb_accelerator *accelerator); /* accepts zeros */

#endif
