/*
 * grouped.h - a small network of convolutions in several groups: as many groups as channels, with
 * one output each and with more; groups of fewer channels than a vector has, and of more; images
 * that are read in groups; 1x1, strides, padding on one side.
 */
#ifndef DPB_TESTS_LIB_GROUPED_H
#define DPB_TESTS_LIB_GROUPED_H

#include "dpbench/plugin.h"

/* Samples of 3x21x18; heights and widths from 8 do. */
extern const struct dpb_plugin grouped_model;

#endif
