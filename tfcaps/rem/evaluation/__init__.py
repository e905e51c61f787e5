"""Measures of trees and of what a network does with them."""
