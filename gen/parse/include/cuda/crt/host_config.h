/* Stands in for the checks nvcc makes of the host compiler: there are none. */
#pragma once
