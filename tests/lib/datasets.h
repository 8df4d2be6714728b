/*
 * datasets.h - small data of the formats that plugins read, for tests that need some and not the
 * real ones. Pixels are noise, labels go round.
 */
#ifndef DPB_TESTS_LIB_DATASETS_H
#define DPB_TESTS_LIB_DATASETS_H

#include <stdint.h>

/* Each makes `directory` and its files. idx: `side` x `side`, 10 classes, not gzipped. */
void dataset_idx(const char *directory, uint32_t n_train, uint32_t n_test, uint32_t side);
/* The binary version of CIFAR-10; `n_each` images in each of its five training files. */
void dataset_cifar10(const char *directory, uint32_t n_each, uint32_t n_test);
/* JPEG files of 16 x 16 pixels in train/ and val/ with two classes each, so many in each. All files
 * hold the same picture. */
void dataset_image_folder(const char *directory, uint32_t n_train, uint32_t n_val);

#endif
