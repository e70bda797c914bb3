/* For headers that include cuda_fp8.h: their functions take none of its types. */
#pragma once
