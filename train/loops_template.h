/* The loops of one version.  loops.c includes this once per version, with VERSION(name) and TARGET. */

TARGET static int32_t VERSION(largest_bits)(const float *x, int n)
{
    int32_t largest = 0;
    for (int i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

TARGET static void VERSION(multiply)(float *x, int n, float factor)
{
    for (int i = 0; i < n; i++) x[i] *= factor;
}

TARGET static void VERSION(add)(float *restrict sum, const float *restrict x, int n)
{
    for (int i = 0; i < n; i++) sum[i] += x[i];
}

TARGET static void VERSION(keep_lost)(float *restrict lost, const float *restrict wanted, const float *restrict sent,
                                      int n)
{
    for (int i = 0; i < n; i++) {
        float x = wanted[i] - sent[i];
        lost[i] = x - x == 0 ? x : 0;
    }
}

static const struct loops VERSION(loops) = {VERSION(largest_bits), VERSION(multiply), VERSION(add), VERSION(keep_lost)};
