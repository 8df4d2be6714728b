/* masked_crc.h - the checksum of TFRecord: CRC-32C, turned and shifted; bit by bit, for tests. */
#ifndef DPB_TESTS_LIB_MASKED_CRC_H
#define DPB_TESTS_LIB_MASKED_CRC_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t masked_crc(const uint8_t *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ UINT32_C(0x82f63b78) : crc >> 1;
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

#endif
