/*
 * plan_file.h - cuDNN's plans as text, so that the next process need not compile them.
 *
 * A plan is a file in the directory TUNING.plans beside the file that device.tuning names. A file's
 * name is a hash of its key: GPU, version of cuDNN, call, shapes, and the plan's rank. Its first
 * line has a checksum of the text, its second the key; the text is cuDNN's
 * (CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION), and holds the compiled kernel.
 *
 * The kernel runs on the GPU as it stands there. So a file is read only if it is this user's and no
 * other user may write it. Files are renamed into place whole.
 */
#ifndef DPB_CUDA_PLAN_FILE_H
#define DPB_CUDA_PLAN_FILE_H

#include "products.h"

enum { PLAN_FILE_MOST = 4 << 20 /* bytes */ };
/* Of all files of a directory; beyond them no plan is kept. */
#define PLAN_FILES_MOST ((uint64_t)512 << 20)

/* Any thread may call these functions.
 *
 * The text that was kept for the plan, @owned: free(). NULL: there is none, or a file that does not
 * fit: a warning says so, and the file is removed. */
char *cuda_plan_file_read(const struct device *device, const char *key, int rank, size_t *bytes);
/* Warns where it cannot be kept. Without device.tuning it does nothing. */
void cuda_plan_file_write(const struct device *device, const char *key, int rank, const char *text,
                          size_t bytes);
/* Removes the plan's file, which does not fit, and warns: why is "is damaged". */
void cuda_plan_file_refuse(const struct device *device, const char *key, int rank, const char *why);

/* Of processes that are about to compile the same plans, `keys` being a hash of their keys, one has
 * its turn: it compiles, and closes the file when all plans are kept. The others wait here until
 * then, at most PLAN_WAIT_S. -1: waited, or no plan can be kept here. */
enum { PLAN_WAIT_S = 600 };
int cuda_plan_file_turn(const struct device *device, uint64_t keys);
uint64_t cuda_plan_file_hash(uint64_t hash, const char *key);

#endif
