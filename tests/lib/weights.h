/*
 * weights.h - the weights and statistics of a checkpoint, read without dpbench's own reader, and
 * the comparison of two trainings by them.
 */
#ifndef DPB_TESTS_LIB_WEIGHTS_H
#define DPB_TESTS_LIB_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weight_tensor {
    char *name;
    uint64_t n_elements;
    const void *values; /* within the file */
    bool fp64;          /* else fp32 */
};

struct weights {
    struct weight_tensor *tensors; /* in the order of the file */
    size_t n_tensors;
    void *file; /* mapped */
    size_t file_bytes;
    struct weights *owned; /* a copy: the test's own (test.h) */
};

/* Reads a safetensors file of F32 and F64 tensors, the optimizer's and the strategy's state where
 * wanted; fails the test when it is not one. */
void weights_read(struct weights *weights, const char *path, bool optimizer);
/* Before the test ends: for large ones. */
void weights_free(struct weights *weights);

double weights_value(const struct weight_tensor *tensor, uint64_t element);

/* Elements of an arena with these tensors: trainable ones, each from a multiple of 16 on. */
uint64_t weights_arena_elements(const struct weights *weights);

/* Of all elements the one that is furthest from what is allowed. */
struct weights_difference {
    const char *tensor;
    uint64_t element;
    double a, b, allowed;
};

/*
 * Whether a and b, tensor by tensor, differ by at most `bound` times a scale: max|b - start|, how
 * far the training moved that tensor, or max|b| where `start` is NULL. What is not a number never
 * agrees. Sets *worst in both cases. Fails the test when the three have not the same tensors.
 */
bool weights_agree(const struct weights *a, const struct weights *b, const struct weights *start,
                   double bound, struct weights_difference *worst);

/*
 * Fails the test unless two checkpoints hold the same tensors with the same bits; the optimizer's
 * and the strategy's state are among them. Without `statistics` batch norm's running ones may
 * differ.
 */
void weights_expect_equal(const char *path_a, const char *path_b, bool statistics);

#endif
