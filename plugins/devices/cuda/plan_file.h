/*
 * plan_file.h - cuDNN's plans as text, so that the next process need not compile.
 *
 * A plan is a file in the directory TUNING.plans beside the file that device.tuning names. A file's
 * name is a hash of its key: GPU, version of cuDNN, call, shapes, and the plan's rank. Its first
 * line has a checksum of the text, its second the key; the text is cuDNN's
 * (CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION), and holds the compiled kernel.
 *
 * The GPU runs the kernel unchecked. So a file is read only if this user owns it and no other user
 * may write it. Files are renamed into place whole.
 */
#ifndef DPB_CUDA_PLAN_FILE_H
#define DPB_CUDA_PLAN_FILE_H

#include "products.h"

enum { PLAN_FILE_MOST = 4 << 20 /* bytes */ };
/* The limit of all files of a directory; beyond it no plan is kept. */
#define PLAN_FILES_MOST ((uint64_t)512 << 20)

/* Any thread may call these functions.
 *
 * Returns the plan's kept text, @owned: free(). NULL: there is none, or the file does not fit: then
 * it warns and removes the file. */
char *cuda_plan_file_read(const struct device *device, const char *key, int rank, size_t *bytes);
/* Warns if the text cannot be kept. Does nothing without device.tuning. */
void cuda_plan_file_write(const struct device *device, const char *key, int rank, const char *text,
                          size_t bytes);
/* Removes the plan's file, which does not fit, and warns. why: as "is damaged". */
void cuda_plan_file_refuse(const struct device *device, const char *key, int rank, const char *why);

/* One of the processes that want to compile the same plans has its turn; `keys` is a hash of the
 * plans' keys. The function returns a file; the process compiles, then closes the file when all
 * plans are kept. The others block here until then, at most PLAN_WAIT_S. -1: has waited, or no plan
 * can be kept here. */
enum { PLAN_WAIT_S = 600 };
int cuda_plan_file_turn(const struct device *device, uint64_t keys);

#endif
