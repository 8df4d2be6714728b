/* wire.h - numbers as connections carry them: little endian, in `bytes` bytes. */
#ifndef DPB_PLUGINS_LIB_WIRE_H
#define DPB_PLUGINS_LIB_WIRE_H

#include <stddef.h>
#include <stdint.h>

/* Writes the value at `at`; returns the place behind it. */
static inline uint8_t *dpb_wire_put(uint8_t *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
    return at + bytes;
}

/* Returns the value at *at; moves *at behind it. */
static inline uint64_t dpb_wire_get(const uint8_t **at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)(*at)[i] << (8 * i);
    *at += bytes;
    return value;
}

#endif
