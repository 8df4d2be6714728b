/*
 * driver.h - the reason why a machine cannot run CUDA, in words. This code loads the driver's
 * library at run time and is linked to no library of CUDA's. So plugins load on machines without
 * CUDA.
 */
#ifndef DPB_PLUGINS_LIB_CUDA_DRIVER_H
#define DPB_PLUGINS_LIB_CUDA_DRIVER_H

/* Returns why a plugin built against CUDA release `built` (CUDART_VERSION: 13000) cannot run here,
 * for dpb_plugin.missing; NULL: it can. Reasons: no driver, a driver that is too old or does not
 * start, no GPU. Initialises the driver, which takes tenths of a second with GPUs and starts
 * threads: never in the launcher. The text lives until the next call. */
const char *cuda_driver_missing(int built);

#endif
