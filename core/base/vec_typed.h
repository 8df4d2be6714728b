/*
 * vec_typed.h - the loops of vec.c for one type of element; included there once for each type, with
 *
 *   T           the element, as it lies in memory
 *   A           the type of arithmetic and of the sum's accumulator
 *   NAME(verb)  the name of the type's function
 *   LOAD(x)     T to A, exact
 *   STORE(x)    A to T, rounded to nearest even
 *   BITS, EXPONENT_MASK   the element as an unsigned integer; its exponent, all ones when not
 * finite
 *
 * No include guard: it is meant to be included again.
 */

CLONES static void NAME(sum2)(T *dst, const T *s0, const T *s1, uint64_t n)
{
    INDEPENDENT
    for (uint64_t i = 0; i < n; i++)
        dst[i] = STORE(LOAD(s0[i]) + LOAD(s1[i]));
}

CLONES static void NAME(sum3)(T *dst, const T *s0, const T *s1, const T *s2, uint64_t n)
{
    INDEPENDENT
    for (uint64_t i = 0; i < n; i++)
        dst[i] = STORE(LOAD(s0[i]) + LOAD(s1[i]) + LOAD(s2[i]));
}

CLONES static void NAME(sum4)(T *dst, const T *s0, const T *s1, const T *s2, const T *s3,
                              uint64_t n)
{
    INDEPENDENT
    for (uint64_t i = 0; i < n; i++)
        dst[i] = STORE(LOAD(s0[i]) + LOAD(s1[i]) + LOAD(s2[i]) + LOAD(s3[i]));
}

/* More than four sources. The accumulators of a block stay in the first cache, so memory is read
 * and written once; dst is written when all sources of its block are read, so it may be any of
 * them. */
CLONES static void NAME(sum_many)(T *dst, const void *const *sources, uint32_t k, uint64_t n)
{
    A sum[BLOCK];
    for (uint64_t begin = 0; begin < n; begin += BLOCK) {
        uint64_t m = n - begin < BLOCK ? n - begin : BLOCK;
        const T *s0 = (const T *)sources[0] + begin, *s1 = (const T *)sources[1] + begin;
        for (uint64_t i = 0; i < m; i++)
            sum[i] = LOAD(s0[i]) + LOAD(s1[i]);
        uint32_t j = 2;
        for (; j + 2 <= k; j += 2) {
            s0 = (const T *)sources[j] + begin;
            s1 = (const T *)sources[j + 1] + begin;
            for (uint64_t i = 0; i < m; i++)
                sum[i] = sum[i] + LOAD(s0[i]) + LOAD(s1[i]);
        }
        if (j < k) {
            s0 = (const T *)sources[j] + begin;
            for (uint64_t i = 0; i < m; i++)
                sum[i] = sum[i] + LOAD(s0[i]);
        }
        for (uint64_t i = 0; i < m; i++)
            dst[begin + i] = STORE(sum[i]);
    }
}

static void NAME(sum)(void *dst, const void *const *s, uint32_t k, uint64_t n)
{
    switch (k) {
    case 0:
        memset(dst, 0, n * sizeof(T));
        break;
    case 1:
        memmove(dst, s[0], n * sizeof(T));
        break;
    case 2:
        NAME(sum2)(dst, s[0], s[1], n);
        break;
    case 3:
        NAME(sum3)(dst, s[0], s[1], s[2], n);
        break;
    case 4:
        NAME(sum4)(dst, s[0], s[1], s[2], s[3], n);
        break;
    default:
        NAME(sum_many)(dst, s, k, n);
    }
}

CLONES static void NAME(axpby)(A a, const T *x, A b, T *y, uint64_t n)
{
    INDEPENDENT
    for (uint64_t i = 0; i < n; i++)
        y[i] = STORE(a * LOAD(x[i]) + b * LOAD(y[i]));
}

CLONES static bool NAME(finite)(const T *x, uint64_t n)
{
    for (uint64_t begin = 0; begin < n; begin += BLOCK) {
        uint64_t end = n - begin < BLOCK ? n : begin + BLOCK;
        BITS found = 0;
        for (uint64_t i = begin; i < end; i++) {
            BITS bits;
            memcpy(&bits, &x[i], sizeof bits);
            found |= (BITS)((bits & EXPONENT_MASK) == EXPONENT_MASK);
        }
        if (found)
            return false;
    }
    return true;
}

#undef T
#undef A
#undef NAME
#undef LOAD
#undef STORE
#undef BITS
#undef EXPONENT_MASK
