/* grouped.h - dpb_network_grouped of conform/networks.h as a model for sessions. */
#ifndef DPB_TESTS_LIB_GROUPED_H
#define DPB_TESTS_LIB_GROUPED_H

#include "dpbench/plugin.h"

/* Samples of 3x21x18; heights and widths from 8 do. */
extern const struct dpb_plugin grouped_model;

#endif
