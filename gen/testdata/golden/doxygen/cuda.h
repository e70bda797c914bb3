#define CUDA_VERSION 13050

/** \defgroup CUDA_THING Things @{ */

typedef enum CUkind_enum {
    CU_KIND_SMALL = 1, /**< Fits a hand */
    CU_KIND_LARGE = 2  /**< Fits a lorry */
} CUkind;

/** What a box is made of, see ::CUbox::kind and \ref ::CUbox::at::x "the place" */
typedef struct CUbox_st {
    CUkind kind; /**< One of ::CUkind::CU_KIND_SMALL and ::CUkind::CU_KIND_LARGE */
    struct {
        int x; /**< Metres from the door */
    } at;
} CUbox;

/**
 * \brief Puts a box on the heap
 *
 * Members are named by their paths: ::CUbox::kind, ::CUbox::at::x, and std::max is no member. A
 * path may pass through a member that is called like a type: ::CUshelf::CUbox::kind.
 *
 * Call it in pairs: \code
   cuPut(box);
   cuTake(box);
 * \endcode
 * That keeps the heap small.
 *
 * - The first step declares a box:
 *   \code
     CUbox box;
 *   \endcode
 * - the second puts it there.
 *
 * A list without code stays one:
 * - this,
 * - that.
 *
 * \param box - The box
 *
 * \return
 * ::CU_KIND_SMALL
 *
 * \sa ::cuTake
 */
int cuPut(CUbox *box);

/**
 * \brief Takes a box from the heap
 *
 * \warning Heaps are going: it will be deprecated in a future release. Fill them by ::cuPut.
 */
int cuTake(CUbox *box);

/** @} */
