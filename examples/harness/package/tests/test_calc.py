import unittest

import calc


class Total(unittest.TestCase):
    def test_without_a_discount_it_is_the_sum(self):
        self.assertEqual(calc.total([100, 250]), 350)

    def test_a_discount_makes_it_less(self):
        self.assertEqual(calc.total([100, 250], 20), 280)


if __name__ == "__main__":
    unittest.main()
