/* ProcessPrng, by which Go gets random numbers, made of what wine 8.0 has. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE p, SIZE_T n)
{
	while (n > 0) {
		ULONG part = n > 1 << 20 ? 1 << 20 : (ULONG)n;

		if (!SystemFunction036(p, part))
			return FALSE;
		p += part;
		n -= part;
	}
	return TRUE;
}
