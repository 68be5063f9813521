/* What the functions of the formula language mean in a C loop, in float32: the counterpart of triton_math.py.

   Everything is branch-free, so that a compiler makes vector instructions of a loop around it, and NaN and infinities
   keep their meaning (no -ffast-math). The polynomials are those of triton_math.py, exp is its own. */

#ifndef __clang__
#pragma GCC optimize ("no-thread-jumps", "no-tree-pre") /* which make branches of choices, and no vector instructions */
#endif

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Names of ours, whatever the C library has under them. */
#define exp sk_exp
#define log sk_log
#define sqrt sk_sqrt
#define tanh sk_tanh
#define expm1 sk_expm1
#define log1p sk_log1p

#define LOWEST -3.402823466e38f
#define HIGHEST 3.402823466e38f

INLINE float from_bits(uint32_t bits) { float value; memcpy(&value, &bits, 4); return value; }
INLINE uint32_t to_bits(float value) { uint32_t bits; memcpy(&bits, &value, 4); return bits; }

/* By bits. Where several choices stand in one another, or ask about a parameter, GCC makes branches of `?:`, and the loop
   around them becomes no vector instructions: 10 to 20 times slower. Elsewhere `?:` is the quicker by a tenth. */
INLINE float pick(int when, float a, float b) {
    uint32_t mask = (uint32_t)-(when != 0);
    return from_bits((to_bits(a) & mask) | (to_bits(b) & ~mask));
}
#ifdef __aarch64__
/* There GCC turns the comparison of a `?:` round, which takes three more instructions for NaN's sake. */
INLINE float where(int when, float a, float b) { return pick(when, a, b); }
#else
INLINE float where(int when, float a, float b) { return when ? a : b; }
#endif
INLINE float absolute(float u) { return __builtin_fabsf(u); }
INLINE float sqrt(float u) { return __builtin_sqrtf(u); }
INLINE float sign(float u) { return u > 0.0f ? 1.0f : u < 0.0f ? -1.0f : u; }
/* A comparison with NaN is false: beside a constant it falls through to a, and elsewhere it is asked for. */
INLINE float maximum(float a, float b) {
    return __builtin_constant_p(b) ? where(a < b, b, a) : where((a > b) | (a != a), a, b);
}
INLINE float minimum(float a, float b) {
    return __builtin_constant_p(b) ? where(a > b, b, a) : where((a < b) | (a != a), a, b);
}
#ifdef __aarch64__
/* Its instructions for the larger and the smaller pass over NaN, which is put back. */
INLINE float clip(float u, float low, float high) { return where(u == u, __builtin_fminf(__builtin_fmaxf(u, low), high), u); }
#else
INLINE float clip(float u, float low, float high) { return minimum(maximum(u, low), high); }
#endif
INLINE float unit(float u) { return clip(u, 0.0f, 1.0f); }
INLINE float clip_unit(float u) { return clip(u, -1.0f, 1.0f); }
INLINE float ramp(float u) { return where(u < 0.0f, 0.0f, u); }
INLINE float finite_left(float u) { return u < LOWEST ? LOWEST : u; }
INLINE float line(float g, float u) { return g * pick(g == 0.0f, clip(u, LOWEST, HIGHEST), u); }

INLINE float exp_near(float r) { /* |r| <= log(2)/2, to 0.07 units (2^-23) */
    float p = 0.0013829185627400875f * r + 0.008368979208171368f;
    p = p * r + 0.041668035089969635f;
    p = p * r + 0.16666507720947266f;
    p = p * r + 0.4999999403953552f;
    p = p * r + 1.0f;
    return p * r + 1.0f;
}

/* e^u = 2^k e^r. k stands in the last bits of k + 2^23 + 2^22; the power of two comes in two factors, as one alone would
   not reach the largest or the subnormal numbers. */
INLINE float exp(float u) {
    float t = clip(u, -104.5f, 89.0f), shifted = t * 1.44269504f + 12582912.0f, k = shifted - 12582912.0f;
    float p = exp_near((t - k * 0.693359375f) + k * 2.12194440e-4f);
    int32_t whole = (int32_t)(to_bits(shifted) - 0x4B400000u), half = whole >> 1;
    return p * from_bits((uint32_t)(half + 127) << 23) * from_bits((uint32_t)(whole - half + 127) << 23);
}

/* The same for u <= 70, in particular below 0, where errors relative to the result are small ones to 1: log(2) in one
   part, and a constant as the second factor. */
INLINE float exp_below(float u) {
    float t = maximum(u, -104.5f), shifted = t * 1.44269504f + 12583063.0f, k = shifted - 12583063.0f; /* k + 151 */
    return exp_near(t - k * 0.6931471805599453f) * from_bits(to_bits(shifted) << 23) * 5.9604644775390625e-8f;
}

INLINE float sigmoid(float u) { return 1.0f / (1.0f + exp(-u)); }

INLINE void sigmoid_pair(float u, float *first, float *second) {
    /* One exponential and one reciprocal for both; e <= 1, so nothing overflows. */
    float e = exp_below(-absolute(u)), r = 1.0f / (1.0f + e), small = e * r;
    *first = u >= 0.0f ? r : small;
    *second = u >= 0.0f ? small : r;
}

INLINE float tanh_near(float u, float q) {
    float p = -0.005905868019908667f * q + 0.02080538496375084f;
    p = p * q - 0.053786683827638626f;
    p = p * q + 0.13331958651542664f;
    p = p * q - 0.33333298563957214f;
    return u + u * q * p;
}

INLINE void tanh_pair(float u, float *first, float *second) {
    /* tanh(u) and its slope 4 w/(1 + w)^2 with w = e^{-2|u|}. */
    float w = exp_below(-2.0f * absolute(u)), r = 1.0f / (1.0f + w), q = u * u, far = (1.0f - w) * r;
    *first = q < 0.36f ? tanh_near(u, q) : u < 0.0f ? -far : far;
    *second = 4.0f * w * r * r;
}

INLINE float tanh(float u) { float value, slope; tanh_pair(u, &value, &slope); return value; }
INLINE float sech_squared(float u) { float value, slope; tanh_pair(u, &value, &slope); return slope; }

INLINE float expm1(float u) {
    /* Below 1/2 a polynomial, above it the difference, which no longer cancels. */
    float p = 0.00019993181922473013f * u + 0.0013997446512803435f;
    p = p * u + 0.008333072066307068f;
    p = p * u + 0.04166531562805176f;
    p = p * u + 0.1666666865348816f;
    p = p * u + 0.5f;
    float near = u + u * u * p, far = exp(u) - 1.0f;
    return absolute(u) < 0.5f ? near : far;
}

INLINE float mish_gate(float u) {
    /* tanh(log(1+e)) = n/(n+2) with n = e(e+2); at u = 40 it has been 1 for long and n is still a number. */
    float e = exp_below(u > 40.0f ? 40.0f : u), n = e * (e + 2.0f);
    return n / (n + 2.0f);
}

INLINE float log_series(float q) { /* (atanh(s)/s - 1)/s^2 for q = s^2, |s| < 0.18 */
    float tail = (0.14012229442596436f * q + 0.13999570906162262f) * q + 0.20010849833488464f;
    return tail * q + 0.3333320617675781f;
}

/* log(1+u) = k log 2 + 2 atanh(s); where k is 0 the s is made from u itself, as 1 + u has lost u's last bits. */
INLINE float log_parts(float w, float u, float *s) {
    int32_t k = (int32_t)(to_bits(w) - 0x3F3504F3u) >> 23;
    float mantissa = from_bits(to_bits(w) - ((uint32_t)k << 23));
    float part = k == 0 ? u : mantissa - 1.0f;
    *s = part / (2.0f + part);
    return (float)k;
}

INLINE float log_whole(float k, float s) { return k * 0.6931471805599453f + (2.0f * s + 2.0f * s * s * s * log_series(s * s)); }

INLINE float log(float u) {
    int small = u < 1.17549435e-38f;
    float w = u * pick(small, 8388608.0f, 1.0f), s, k = log_parts(w, w - 1.0f, &s);
    float value = pick(u > HIGHEST, u, log_whole(pick(small, k - 23.0f, k), s));
    return pick(u > 0.0f, value, pick(u == 0.0f, -__builtin_inff(), __builtin_nanf("")));
}

INLINE float log1p(float u) {
    float s, k = log_parts(1.0f + u, u, &s), value = pick(u > HIGHEST, u, log_whole(k, s));
    return pick(u > -1.0f, value, pick(u == -1.0f, -__builtin_inff(), __builtin_nanf("")));
}

INLINE float log1p_minus_near(float u) {
    float s, k = log_parts(1.0f + u, u, &s);
    (void)k;
    return s * (2.0f * s * s * log_series(s * s) - u);
}

INLINE float log1p_minus(float u) {
    float s, k = log_parts(1.0f + u, u, &s), near = s * (2.0f * s * s * log_series(s * s) - u);
    return k == 0.0f ? near : log_whole(k, s) - u;
}

INLINE float log1p_unit(float v) { float s = v / (2.0f + v); return 2.0f * s + 2.0f * s * (s * s) * log_series(s * s); }
INLINE float softplus(float u) { return ramp(u) + log1p_unit(exp_below(-absolute(u))); }

/* 2^24 e^{-u^2/2}, as a power of 2 with |f| <= 1/2 left over for a polynomial (0.08 units). The factor keeps subnormal
   numbers for those who multiply by 2^-24 last. */
#define SCALED 5.9604644775390625e-8f
INLINE float scaled_bell(float u) {
    float w = minimum(u * u, 209.0f), shifted = w * -0.7213475204444817f + 12583063.0f, k = shifted - 12583063.0f;
    float f = w * -0.7213475204444817f - k;
    float p = 0.00015337315562646836f * f + 0.0013390592066571116f;
    p = p * f + 0.009618445299565792f;
    p = p * f + 0.05550358071923256f;
    p = p * f + 0.24022649228572845f;
    p = p * f + 0.6931471824645996f;
    return (p * f + 1.0f) * from_bits(to_bits(shifted) << 23);
}

INLINE float scaled_tail(float z) { /* 2^-24 Phi(-z) e^{z^2/2} for z >= 0 */
    float t = 1.0f / (1.0f + 0.21f * z);
    float p = -0.07129407674074173f * SCALED * t + 0.2818009853363037f * SCALED;
    p = p * t - 0.3264857828617096f * SCALED;
    p = p * t + 0.3449779748916626f * SCALED;
    p = p * t - 0.09076650440692902f * SCALED;
    p = p * t + 0.12346945703029633f * SCALED;
    p = p * t + 0.06957044452428818f * SCALED;
    p = p * t + 0.08501233905553818f * SCALED;
    return (p * t + 0.08371515572071075f * SCALED) * t;
}

INLINE void normal_pair(float u, float *first, float *second) {
    float bell = scaled_bell(u), tail = bell * scaled_tail(absolute(u));
    *first = u < 0.0f ? tail : 1.0f - tail;
    *second = 0.3989422804014327f * SCALED * bell;
}

INLINE float normal_cdf(float u) { float value, slope; normal_pair(u, &value, &slope); return value; }
INLINE float normal_pdf(float u) { return 0.3989422804014327f * SCALED * scaled_bell(u); }
